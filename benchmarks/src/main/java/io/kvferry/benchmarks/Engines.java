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
    private Engines() {}

    /// Waits until no connector holds or reads a block any more.
    ///
    /// @param look time between two looks at the engine's figures, each of which takes some of the
    ///   processor
    /// @throws IllegalStateException when the limit came first
    public static void awaitIdle(Engine engine, Deadline limit, Duration look) {
        // The figures of the step that ended the request are out when the next step runs.
        engine.submit(GenerationRequest.of(new int[] {7}, SamplingParams.greedy(1))).await(limit);
        for (var now = engine.stats();
                now.held() > 0 || now.leasedBlocks() > 0;
                now = engine.stats()) {
            if (limit.passed()) {
                throw new IllegalStateException("blocks are still held: " + now);
            }
            LockSupport.parkNanos(look.toNanos());
        }
    }
}
