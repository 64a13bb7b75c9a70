// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import static io.kvferry.backend.nccl.plane.PlaneRuns.SOON;
import static io.kvferry.backend.nccl.plane.PlaneRuns.await;
import static io.kvferry.backend.nccl.plane.PlaneRuns.code;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.HostPlane.Ways;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.crossmemory.ProcessIdentity;
import io.kvferry.toolkit.crossmemory.ProcessVm;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.zip.CRC32C;

/// Which transfers the receiver copies out of the sender's memory, and what a sender may not say.
class CopiedBlocksTest {
    private static final int BYTES = 64;

    private final Arena arena = Arena.ofShared();
    private final List<HostPlane> planes = new ArrayList<>();

    /// A process may always read its own memory, where the call exists.
    @BeforeEach
    void linked() {
        var missing = ProcessVm.missing();
        Assumptions.assumeTrue(missing.isEmpty(), () -> missing.orElse(""));
    }

    @AfterEach
    void close() {
        planes.forEach(HostPlane::close);
        arena.close();
    }

    private HostPlane plane(Ways ways) {
        var plane = HostPlane.open("test", "127.0.0.1", "127.0.0.1", ways);
        planes.add(plane);
        return plane;
    }

    private Placement placement(MemorySegment memory) {
        return new Placement(
                List.of(new Placement.Part(0, memory, BYTES, BYTES, new int[] {0, 1})));
    }

    /// Blocks on the Java heap have no address.
    @ParameterizedTest
    @CsvSource({
        "ANY,ANY,none,copy",
        "ANY,TCP,none,tcp",
        "TCP,ANY,none,tcp",
        "TCP,TCP,none,tcp",
        "ANY,ANY,source,tcp",
        "ANY,ANY,target,tcp"
    })
    void blocksAreCopiedWhereBothSidesDoSo(Ways here, Ways there, String heap, String way) {
        var sender = plane(here);
        var receiver = plane(there);
        var bytes = new byte[2 * BYTES];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) (i * 7 + 1);
        }
        var from = memory(bytes.length, heap.equals("source"));
        from.copyFrom(MemorySegment.ofArray(bytes));
        var to = memory(bytes.length, heap.equals("target"));
        var grant = Grant.draw();
        var received = new CompletableFuture<Outcome>();
        var sent = new CompletableFuture<Outcome>();
        receiver.receive(grant, placement(to), Deadline.in(SOON), received::complete);
        sender.send(receiver.address(), grant, placement(from), Deadline.in(SOON), sent::complete)
                .commit();
        assertThat(await(received)).isEqualTo(new Outcome.Done(bytes.length));
        assertThat(await(sent)).isEqualTo(new Outcome.Done(bytes.length));
        assertThat(to.toArray(ValueLayout.JAVA_BYTE)).isEqualTo(bytes);
        var other = way.equals("tcp") ? "copy" : "tcp";
        assertThat(receiver.takeReceived()).isEqualTo(Map.of(way, (long) bytes.length, other, 0L));
    }

    private MemorySegment memory(int bytes, boolean heap) {
        return heap ? MemorySegment.ofArray(new byte[bytes]) : arena.allocate(bytes);
    }

    /// A window, and a sender of the test that comes to it with this process to copy from.
    private final class RawSender implements AutoCloseable {
        final MemorySegment to = arena.allocate(2 * BYTES);
        final MemorySegment secret = arena.allocate(2 * BYTES).fill((byte) 1);
        final MemorySegment probe = arena.allocate(32);
        final CompletableFuture<Outcome> received = new CompletableFuture<>();
        final SocketChannel channel;
        final int way;

        RawSender(int pid, long start, long namespace, long probeAddress) throws IOException {
            var receiver = plane(Ways.ANY);
            var grant = Grant.draw();
            receiver.receive(grant, placement(to), Deadline.in(SOON), received::complete);
            var port = Integer.parseInt(receiver.address().split(":")[1]);
            channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
            var process = PlayedEnd.sender(channel, grant, true);
            process.position(GrantProof.PROOF_BYTES);
            process.putInt(pid).putInt(1).putLong(start).putLong(namespace);
            process.putLong(probeAddress == 0 ? probe.address() : probeAddress);
            HostWire.writeFully(channel, process.flip());
            var number = HostWire.buffer(Integer.BYTES);
            assertThat(HostWire.readInt(channel, number)).isZero();
            way = HostWire.readInt(channel, number);
            assertThat(HostWire.readInt(channel, number)).as("checksums").isOne();
            if (way == HostWire.WAY_COPIED) {
                var token = ByteBuffer.allocate(32);
                HostWire.readFully(channel, token);
                probe.copyFrom(MemorySegment.ofArray(token.array()));
            }
        }

        void tell(long[]... runs) throws IOException {
            tell(0, runs);
        }

        /// @param damage of the checksum
        void tell(int damage, long[]... runs) throws IOException {
            var crc = new CRC32C();
            crc.update(secret.asByteBuffer());
            var piece = HostWire.buffer(24 + 8 + 16 * runs.length);
            piece.putInt(0)
                    .putInt(0)
                    .putInt(2)
                    .putInt((int) crc.getValue() ^ damage)
                    .putLong(2 * BYTES);
            piece.putInt(runs.length).putInt(0);
            for (var run : runs) {
                piece.putLong(run[0]).putLong(run[1]);
            }
            HostWire.writeFully(channel, piece.flip());
        }

        void assertRefused(ErrorCode expected) {
            assertThat(code(await(received))).isEqualTo(expected);
            assertThat(to.toArray(ValueLayout.JAVA_BYTE)).containsOnly(0);
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }
    }

    private RawSender raw() throws IOException {
        var self = ProcessIdentity.own().orElseThrow();
        return new RawSender(self.pid(), self.startTicks(), self.pidNamespace(), 0);
    }

    @Test
    void blocksAreCopiedOnlyFromTheProcessThatShowsTheToken() throws IOException {
        try (var raw = raw()) {
            assertThat(raw.way).isEqualTo(HostWire.WAY_COPIED);
            raw.probe.set(
                    ValueLayout.JAVA_BYTE, 31, (byte) ~raw.probe.get(ValueLayout.JAVA_BYTE, 31));
            raw.tell(new long[] {raw.secret.address(), 2 * BYTES});
            raw.assertRefused(ErrorCode.PEER_LOST);
        }
        try (var raw = raw()) {
            raw.tell(new long[] {raw.secret.address(), 2 * BYTES});
            var number = HostWire.buffer(Integer.BYTES);
            assertThat(HostWire.readInt(raw.channel, number)).isZero();
            assertThat(raw.to.mismatch(raw.secret)).isEqualTo(-1);
        }
        try (var raw = raw()) {
            raw.tell(1, new long[] {raw.secret.address(), 2 * BYTES});
            assertThat(code(await(raw.received))).isEqualTo(ErrorCode.CORRUPT);
        }
        assertThat(planes).hasSize(3);
    }

    @Test
    void runsThatAreNotThePieceEndTheTransfer() throws IOException {
        long[][] lengths = {
            {},
            {BYTES},
            {2 * BYTES + 1},
            {BYTES, BYTES, 1},
            {0, 2 * BYTES},
            {-1},
            {Long.MAX_VALUE},
            {BYTES, Long.MIN_VALUE}
        };
        for (var list : lengths) {
            try (var raw = raw()) {
                var runs = new long[list.length][];
                for (int i = 0; i < list.length; i++) {
                    runs[i] = new long[] {raw.secret.address(), list[i]};
                }
                raw.tell(runs);
                raw.assertRefused(ErrorCode.PROTOCOL);
            }
        }
        try (var raw = raw()) {
            raw.tell(new long[] {1, 2 * BYTES}); // nothing lies there
            raw.assertRefused(ErrorCode.IO);
        }
    }

    /// It may not be copied, or it is not who it says: its blocks come over the connection.
    @Test
    void aProcessThatIsNotWhatItSaysIsNotCopied() throws IOException {
        var self = ProcessIdentity.own().orElseThrow();
        int pid = self.pid();
        long start = self.startTicks();
        long namespace = self.pidNamespace();
        try (var none = new RawSender(0, 0, 0, 0);
                var negative = new RawSender(-1, start, namespace, 0);
                var restarted = new RawSender(pid, start + 1, namespace, 0);
                var contained = new RawSender(pid, start, namespace + 1, 0);
                var nowhere = new RawSender(pid, start, namespace, 8)) {
            for (var each : List.of(none, negative, restarted, contained, nowhere)) {
                assertThat(each.way).isEqualTo(HostWire.WAY_SENT);
            }
        }
    }
}
