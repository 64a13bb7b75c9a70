// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/// Blocks, transfers between two planes, and what must hold afterwards.
public final class PlaneRuns {
    public static final Duration SOON = Duration.ofSeconds(50);
    public static final int BLOCKS = 64;

    private PlaneRuns() {}

    /// Layers with gaps between their blocks, and these blocks of them.
    public static Placement placement(Arena arena, int layers, long blockBytes, int... blocks) {
        var parts = new ArrayList<Placement.Part>();
        for (int layer = 0; layer < layers; layer++) {
            long stride = layer % 2 == 0 ? blockBytes : blockBytes + 24;
            var segment = arena.allocate(stride * BLOCKS, 64);
            parts.add(new Placement.Part(layer, segment, stride, blockBytes, blocks));
        }
        return new Placement(parts);
    }

    public static void fill(Placement placement, Random random) {
        for (var part : placement.parts()) {
            for (int at = 0; at < part.count(); at++) {
                var bytes = new byte[(int) part.blockBytes()];
                random.nextBytes(bytes);
                block(part, at).copyFrom(MemorySegment.ofArray(bytes));
            }
        }
    }

    public static MemorySegment block(Placement.Part part, int position) {
        return part.segment()
                .asSlice(part.blocks()[position] * part.strideBytes(), part.blockBytes());
    }

    /// The bytes of a placement, in order.
    public static byte[] contents(Placement placement) {
        var all = new byte[Math.toIntExact(placement.bytes())];
        int at = 0;
        for (var part : placement.parts()) {
            for (int i = 0; i < part.count(); i++) {
                var bytes = block(part, i);
                MemorySegment.copy(bytes, 0, MemorySegment.ofArray(all), at, bytes.byteSize());
                at += (int) bytes.byteSize();
            }
        }
        return all;
    }

    public static void assertEqualBlocks(Placement sent, Placement received) {
        for (int i = 0; i < sent.parts().size(); i++) {
            var from = sent.parts().get(i);
            for (int at = 0; at < from.count(); at++) {
                assertThat(block(from, at).mismatch(block(received.parts().get(i), at)))
                        .as("part %d block %d", i, at)
                        .isEqualTo(-1);
            }
        }
    }

    public static Outcome await(CompletableFuture<Outcome> outcome) {
        return outcome.orTimeout(SOON.toSeconds(), TimeUnit.SECONDS).join();
    }

    public static ErrorCode code(Outcome outcome) {
        assertThat(outcome).isInstanceOf(Outcome.Failed.class);
        return ((Outcome.Failed) outcome).failure().code();
    }

    /// Both ends of one transfer.
    public static final class Run {
        public final Grant grant = Grant.draw();
        public final Placement from;
        public final Placement to;
        public final CompletableFuture<Outcome> received = new CompletableFuture<>();
        public final CompletableFuture<Outcome> sent = new CompletableFuture<>();
        public final DataPlane.Window window;
        public final DataPlane.Sending sending;

        public Run(DataPlane sender, DataPlane receiver, Placement from, Placement to) {
            this(sender, receiver, from, to, SOON);
        }

        public Run(
                DataPlane sender,
                DataPlane receiver,
                Placement from,
                Placement to,
                Duration limit) {
            this.from = from;
            this.to = to;
            window =
                    receiver.receive(
                            grant, to, Deadline.in(limit), outcome -> once(received, outcome));
            sending =
                    sender.send(
                            receiver.address(),
                            grant,
                            from,
                            Deadline.in(limit),
                            outcome -> once(sent, outcome));
        }

        public void assertArrives() {
            sending.commit();
            assertThat(await(sent)).isEqualTo(new Outcome.Done(from.bytes()));
            assertThat(await(received)).isEqualTo(new Outcome.Done(from.bytes()));
            assertEqualBlocks(from, to);
        }
    }

    private static void once(CompletableFuture<Outcome> end, Outcome outcome) {
        if (!end.complete(outcome)) {
            throw new AssertionError("told twice: " + end.join() + ", then " + outcome);
        }
    }
}
