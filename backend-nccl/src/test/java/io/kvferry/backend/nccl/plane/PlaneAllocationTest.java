// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.HostPlane.Ways;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.crossmemory.ProcessVm;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// What the threads of a transfer allocate on Java's heap for each tensor, once they have been at
/// its memory before.
class PlaneAllocationTest {
    private static final Duration SOON = Duration.ofSeconds(100);
    private static final int TENSORS = 4000;
    private static final int LAYERS = 8;

    /// Of a transfer, before its threads are measured.
    private static final int FIRST = 100;

    private static final long MOST_BYTES = 16;

    /// Of a call of the C library, until the JVM's second compiler has had it.
    private static final long CALL_BYTES = 40;

    /// To look at the token, and to copy.
    private static final int CALLS = 2;

    private final com.sun.management.ThreadMXBean threads =
            (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();

    /// A plane and the threads that it has begun.
    private static final class Side implements AutoCloseable {
        final List<Thread> begun = new CopyOnWriteArrayList<>();
        final HostPlane plane;

        Side(Ways ways) {
            plane =
                    HostPlane.open(
                            "test",
                            "127.0.0.1",
                            "127.0.0.1",
                            ways,
                            work -> {
                                var thread = Thread.ofPlatform().daemon(true).unstarted(work);
                                begun.add(thread);
                                return thread;
                            });
        }

        @Override
        public void close() {
            plane.close();
        }
    }

    /// Tensors of three runs each, by turns in eight segments, as layers are; the last one alone.
    private static Placement placement(Arena arena, long blockBytes) {
        int[] blocks = {0, 2, 3, 5};
        var segments = new ArrayList<MemorySegment>();
        for (int i = 0; i <= LAYERS; i++) {
            segments.add(arena.allocate(6 * blockBytes, 64));
        }
        var parts = new ArrayList<Placement.Part>();
        for (int i = 0; i < TENSORS; i++) {
            var segment = segments.get(i == TENSORS - 1 ? LAYERS : i % LAYERS);
            parts.add(new Placement.Part(i, segment, blockBytes, blockBytes, blocks));
        }
        return new Placement(parts);
    }

    private long allocated(Side side) {
        return threads.getThreadAllocatedBytes(side.begun.getLast().threadId());
    }

    @ParameterizedTest
    @CsvSource({"TCP,65536", "ANY,65536", "ANY,4096"})
    void aTensorCostsNothingOfTheHeap(Ways ways, long blockBytes) {
        if (ways == Ways.ANY) {
            var missing = ProcessVm.missing();
            Assumptions.assumeTrue(missing.isEmpty(), () -> missing.orElse(""));
        }
        try (var arena = Arena.ofShared();
                var from = new Side(ways);
                var to = new Side(ways)) {
            var source = placement(arena, blockBytes);
            var target = placement(arena, blockBytes);
            transfer(from, to, source, target, (byte) 1); // makes the views
            var bytes = transfer(from, to, source, target, (byte) 2);
            assertThat(bytes[0])
                    .as("of the sender, for a tensor")
                    .isBetween(0.0, (double) MOST_BYTES);
            long calls = ways == Ways.ANY ? CALLS * CALL_BYTES : 0;
            assertThat(bytes[1])
                    .as("of the receiver, for a tensor")
                    .isBetween(0.0, (double) calls + MOST_BYTES);
            var way = ways == Ways.ANY ? "copy" : "tcp";
            var other = ways == Ways.ANY ? "tcp" : "copy";
            assertThat(to.plane.takeReceived())
                    .isEqualTo(Map.of(way, 2 * target.bytes(), other, 0L));
        }
    }

    /// Bytes that sender and receiver allocate for each tensor but the first ones.
    private double[] transfer(
            Side from, Side to, Placement source, Placement target, byte content) {
        source.parts().forEach(part -> part.segment().fill(content));
        var grant = Grant.draw();
        var received = new CompletableFuture<Outcome>();
        var sent = new CompletableFuture<Outcome>();
        var _ = to.plane.receive(grant, target, Deadline.in(SOON), received::complete);
        var sending =
                from.plane.send(
                        to.plane.address(), grant, source, Deadline.in(SOON), sent::complete);
        sending.available(FIRST);
        assertThat(sending.awaitSent(FIRST, Deadline.in(SOON))).isTrue();
        var last = target.parts().get(TENSORS - 1);
        last.segment().fill((byte) 0);
        source.parts().get(TENSORS - 1).segment().fill((byte) (content + 8));
        long fromBefore = allocated(from);
        long toBefore = allocated(to);
        sending.available(TENSORS);
        assertThat(sending.awaitSent(TENSORS, Deadline.in(SOON))).isTrue();
        long end = last.segment().byteSize() - 1;
        var limit = Deadline.in(SOON);
        while (last.segment().get(ValueLayout.JAVA_BYTE, end) != content + 8) {
            assertThat(limit.passed()).as("the last tensor has not come").isFalse();
            LockSupport.parkNanos(100_000);
        }
        double tensors = TENSORS - FIRST;
        var bytes =
                new double[] {
                    (allocated(from) - fromBefore) / tensors, (allocated(to) - toBefore) / tensors
                };
        sending.commit();
        assertThat(await(received)).isInstanceOf(Outcome.Done.class);
        assertThat(await(sent)).isInstanceOf(Outcome.Done.class);
        return bytes;
    }

    private static Outcome await(CompletableFuture<Outcome> outcome) {
        return outcome.orTimeout(SOON.toSeconds(), TimeUnit.SECONDS).join();
    }
}
