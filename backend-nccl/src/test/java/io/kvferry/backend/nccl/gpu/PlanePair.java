// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/// Blocks, transfers between two planes over the double, and what must hold afterwards.
final class PlanePair {
    static final Duration SOON = Duration.ofSeconds(40);
    static final int BLOCKS = 32;

    private PlanePair() {}

    static NcclPlane plane(NcclDouble nccl, String name, long slotBytes, Duration limit) {
        return NcclPlane.open(
                name,
                "127.0.0.1",
                "127.0.0.1",
                nccl.library(),
                nccl.driver(),
                new NcclPlane.Limits(slotBytes, limit, limit, Duration.ofHours(1), 0));
    }

    /// Layers with gaps between their blocks, and these blocks of them.
    static Placement placement(Arena arena, int layers, long blockBytes, int... blocks) {
        var parts = new ArrayList<Placement.Part>();
        for (int layer = 0; layer < layers; layer++) {
            long stride = layer % 2 == 0 ? blockBytes : blockBytes + 24;
            var segment = arena.allocate(stride * BLOCKS, 64);
            parts.add(new Placement.Part(layer, segment, stride, blockBytes, blocks));
        }
        return new Placement(parts);
    }

    static void fill(Placement placement, Random random) {
        for (var part : placement.parts()) {
            for (int at = 0; at < part.count(); at++) {
                var bytes = new byte[(int) part.blockBytes()];
                random.nextBytes(bytes);
                block(part, at).copyFrom(MemorySegment.ofArray(bytes));
            }
        }
    }

    static MemorySegment block(Placement.Part part, int position) {
        return part.segment()
                .asSlice(part.blocks()[position] * part.strideBytes(), part.blockBytes());
    }

    /// The bytes of a placement, in order.
    static byte[] contents(Placement placement) {
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

    static Outcome await(CompletableFuture<Outcome> outcome) {
        return outcome.orTimeout(SOON.toSeconds(), TimeUnit.SECONDS).join();
    }

    static ErrorCode code(Outcome outcome) {
        assertThat(outcome).isInstanceOf(Outcome.Failed.class);
        return ((Outcome.Failed) outcome).failure().code();
    }

    /// Both ends of one transfer.
    static final class Run {
        final Grant grant = Grant.draw();
        final Placement from;
        final Placement to;
        final CompletableFuture<Outcome> received = new CompletableFuture<>();
        final CompletableFuture<Outcome> sent = new CompletableFuture<>();
        final DataPlane.Window window;
        final DataPlane.Sending sending;

        Run(DataPlane sender, DataPlane receiver, Placement from, Placement to) {
            this(sender, receiver, from, to, SOON);
        }

        Run(DataPlane sender, DataPlane receiver, Placement from, Placement to, Duration limit) {
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

        void assertArrives() {
            sending.commit();
            assertThat(await(sent)).isEqualTo(new Outcome.Done(from.bytes()));
            assertThat(await(received)).isEqualTo(new Outcome.Done(from.bytes()));
            assertThat(Arrays.equals(contents(to), contents(from))).isTrue();
        }
    }

    private static void once(CompletableFuture<Outcome> end, Outcome outcome) {
        if (!end.complete(outcome)) {
            throw new AssertionError("told twice: " + end.join() + ", then " + outcome);
        }
    }
}
