// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.Deadline;

import java.time.Duration;
import java.util.concurrent.locks.LockSupport;

/// What benchmarks do with engines of their own.
public final class Engines {
    /// Between two looks at an engine's figures. New code looks for tens of microseconds: every 200
    /// us a look took a quarter of a first hand-off's save.
    private static final Duration LOOK = Duration.ofMillis(1);

    private Engines() {}

    /// Waits until no connector holds or reads a block any more, and up to a millisecond longer.
    ///
    /// @throws IllegalStateException when the limit came first
    public static void awaitIdle(Engine engine, Deadline limit) {
        // The figures of the step that ended the request are out when the next step runs.
        engine.submit(GenerationRequest.of(new int[] {7}, SamplingParams.greedy(1))).await(limit);
        for (var now = engine.stats();
                now.held() > 0 || now.leasedBlocks() > 0;
                now = engine.stats()) {
            if (limit.passed()) {
                throw new IllegalStateException("blocks are still held: " + now);
            }
            LockSupport.parkNanos(LOOK.toNanos());
        }
    }
}
