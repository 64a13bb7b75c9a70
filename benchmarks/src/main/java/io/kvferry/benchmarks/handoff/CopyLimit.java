// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.backend.mooncake.te.EngineConfig;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;

/// Reference for a hand-off within a host: a memory copy by as many threads as the transfer engine
/// uses, measured in the same minute. Both buffers have been touched before.
///
/// Threading: one thread.
final class CopyLimit implements Limit, AutoCloseable {
    /// Longer copies are reckoned from one of this length.
    private static final long MOST = 1L << 30;

    private final Arena arena = Arena.ofShared();
    private final MemorySegment from = arena.allocate(MOST, 4096);
    private final MemorySegment to = arena.allocate(MOST, 4096);
    private final int threads = EngineConfig.defaults().mostSlices();

    CopyLimit() {
        from.fill((byte) 1);
        to.fill((byte) 2);
    }

    @Override
    public Cost of(long bytes) {
        long copied = Math.min(MOST, bytes);
        long part = copied / threads;
        var all = new ArrayList<Thread>();
        long begun = System.nanoTime();
        for (int i = 0; i < threads; i++) {
            long at = i * part;
            all.add(Thread.ofPlatform().start(() -> MemorySegment.copy(from, at, to, at, part)));
        }
        for (var thread : all) {
            try {
                thread.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException("interrupted during a copy", e);
            }
        }
        long nanos = (long) ((System.nanoTime() - begun) * ((double) bytes / copied));
        return new Cost(nanos, nanos * threads);
    }

    @Override
    public void close() {
        arena.close();
    }
}
