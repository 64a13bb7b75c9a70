// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.Deadline;

import java.util.concurrent.locks.LockSupport;

/// What benchmarks do with engines of their own.
public final class Engines {
    /// Bounds of the polling interval, which is a sixteenth of the time waited so far. Each poll
    /// sums all figures of the engine; polling every 200 us made a first save a third slower.
    private static final long LEAST_LOOK_NANOS = 500_000;

    private static final long MOST_LOOK_NANOS = 3_000_000;

    private Engines() {}

    /// Waits until no connector holds or reads a block; polls at most 3 ms too late.
    ///
    /// @throws IllegalStateException when the limit came first
    public static void awaitIdle(Engine engine, Deadline limit) {
        // The figures of the step that ended the request are out when the next step runs.
        engine.submit(GenerationRequest.of(new int[] {7}, SamplingParams.greedy(1))).await(limit);
        long began = System.nanoTime();
        for (var now = engine.stats();
                now.held() > 0 || now.leasedBlocks() > 0;
                now = engine.stats()) {
            if (limit.passed()) {
                throw new IllegalStateException("blocks are still held: " + now);
            }
            long waited = System.nanoTime() - began;
            LockSupport.parkNanos(Math.clamp(waited / 16, LEAST_LOOK_NANOS, MOST_LOOK_NANOS));
        }
    }
}
