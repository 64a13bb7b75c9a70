// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import static io.kvferry.backend.nccl.plane.PlaneRuns.SOON;
import static io.kvferry.backend.nccl.plane.PlaneRuns.await;
import static io.kvferry.backend.nccl.plane.PlaneRuns.code;
import static io.kvferry.backend.nccl.plane.PlaneRuns.contents;
import static io.kvferry.backend.nccl.plane.PlaneRuns.fill;
import static io.kvferry.backend.nccl.plane.PlaneRuns.placement;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.HostPlane.Checksum;
import io.kvferry.backend.nccl.plane.HostPlane.Ways;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.zip.CRC32C;

/// Whether bytes are summed, and which pieces they come in: planes against ends that the test
/// plays. What connects from 127.0.0.1 to 127.0.0.2 is taken for another host.
class HostPlaneSumsTest {
    private static final String WITHIN = "127.0.0.1";
    private static final String BETWEEN = "127.0.0.2";

    private final Arena arena = Arena.ofShared();
    private final List<HostPlane> planes = new ArrayList<>();
    private final ByteBuffer number = HostWire.buffer(Integer.BYTES);

    @AfterEach
    void close() {
        planes.forEach(HostPlane::close);
        arena.close();
    }

    private HostPlane plane(String address, Ways ways, Checksum checksum) {
        var plane = HostPlane.open("test", address, address, ways, checksum);
        planes.add(plane);
        return plane;
    }

    private static SocketChannel connect(HostPlane plane) throws IOException {
        var words = plane.address().split(":");
        return SocketChannel.open(new InetSocketAddress(words[0], Integer.parseInt(words[1])));
    }

    /// A sender that the test plays, which never sums.
    @ParameterizedTest
    @CsvSource({
        "127.0.0.1,AUTO,false,false",
        "127.0.0.1,AUTO,true,true",
        "127.0.0.1,ALWAYS,false,true",
        "127.0.0.1,NEVER,false,false",
        "127.0.0.1,NEVER,true,true",
        "127.0.0.2,AUTO,false,true",
        "127.0.0.2,NEVER,false,false",
        "127.0.0.2,NEVER,true,true"
    })
    void aReceiverLooksAtChecksumsWhereOneEndWantsThem(
            String address, Checksum checksum, boolean asks, boolean sums) throws IOException {
        var receiver = plane(address, Ways.TCP, checksum);
        var from = placement(arena, 2, 64, 1, 2);
        var to = placement(arena, 2, 64, 3, 4);
        fill(from, new Random(1));
        var grant = Grant.draw();
        var received = new CompletableFuture<Outcome>();
        receiver.receive(grant, to, Deadline.in(SOON), received::complete);
        try (var channel = connect(receiver)) {
            HostWire.writeFully(channel, PlayedEnd.sender(channel, grant, asks));
            assertThat(HostWire.readInt(channel, number)).isZero();
            assertThat(HostWire.readInt(channel, number)).isEqualTo(HostWire.WAY_SENT);
            assertThat(HostWire.readInt(channel, number)).isEqualTo(sums ? 1 : 0);
            var piece = HostWire.buffer(3 * HostWire.PIECE_BYTES + 256);
            var bytes = contents(from);
            piece.putInt(0).putInt(0).putInt(2).putInt(0).putLong(128).put(bytes, 0, 128);
            piece.putInt(1).putInt(0).putInt(2).putInt(0).putLong(128).put(bytes, 128, 128);
            piece.putInt(HostWire.END).putInt(0).putInt(0).putInt(0).putLong(256);
            HostWire.writeFully(channel, piece.flip());
            assertThat(HostWire.readInt(channel, number))
                    .isEqualTo(sums ? ErrorCode.CORRUPT.wire() : 0);
        }
        if (sums) {
            assertThat(code(await(received))).isEqualTo(ErrorCode.CORRUPT);
        } else {
            assertThat(await(received)).isEqualTo(new Outcome.Done(256));
            assertThat(contents(to)).isEqualTo(contents(from));
        }
    }

    /// A receiver that the test plays.
    private final class Played implements AutoCloseable {
        final ServerSocketChannel listener;
        final CompletableFuture<Outcome> sent = new CompletableFuture<>();
        final SocketChannel channel;
        final boolean asked;

        Played(String address, Checksum checksum, Placement from) throws IOException {
            listener = ServerSocketChannel.open().bind(new InetSocketAddress(address, 0));
            var sender = plane(WITHIN, Ways.TCP, checksum);
            var grant = Grant.draw();
            sender.send(
                            address + ":" + listener.socket().getLocalPort(),
                            grant,
                            from,
                            Deadline.in(SOON),
                            sent::complete)
                    .commit();
            channel = listener.accept();
            asked = PlayedEnd.receiver(channel, grant).getInt(Integer.BYTES) == 1;
        }

        void answer(int... numbers) throws IOException {
            for (int each : numbers) {
                HostWire.writeInt(channel, number, each);
            }
        }

        /// Header and bytes of a piece; the bytes are empty at the end.
        byte[] read(ByteBuffer header) throws IOException {
            HostWire.readFully(channel, header.clear());
            boolean ends = header.getInt(0) == HostWire.END;
            var bytes = ByteBuffer.allocate(ends ? 0 : (int) header.getLong(16));
            HostWire.readFully(channel, bytes);
            return bytes.array();
        }

        @Override
        public void close() throws IOException {
            channel.close();
            listener.close();
        }
    }

    @ParameterizedTest
    @CsvSource({
        "127.0.0.1,AUTO,false",
        "127.0.0.1,ALWAYS,true",
        "127.0.0.1,NEVER,false",
        "127.0.0.2,AUTO,true",
        "127.0.0.2,NEVER,false"
    })
    void aSenderSumsWhereItAsksOrIsAsked(String address, Checksum checksum, boolean asks)
            throws IOException {
        long block = 3 << 18; // of which one is shown at a time
        var from = placement(arena, 2, block, 5, 6, 1);
        fill(from, new Random(2));
        for (boolean wanted : asks ? new boolean[] {true} : new boolean[] {true, false}) {
            try (var played = new Played(address, checksum, from)) {
                assertThat(played.asked).isEqualTo(asks);
                played.answer(0, HostWire.WAY_SENT, wanted ? 1 : 0);
                var all = HostWire.buffer((int) from.bytes());
                var header = HostWire.buffer(HostWire.PIECE_BYTES);
                int pieces = 0;
                for (var bytes = played.read(header); bytes.length > 0; ) {
                    var crc = new CRC32C();
                    crc.update(bytes);
                    assertThat(header.getInt(12)).isEqualTo(wanted ? (int) crc.getValue() : 0);
                    all.put(bytes);
                    pieces++;
                    bytes = played.read(header);
                }
                played.answer(0);
                assertThat(await(played.sent)).isEqualTo(new Outcome.Done(from.bytes()));
                var came = new byte[all.capacity()];
                all.flip().get(came);
                assertThat(came).isEqualTo(contents(from));
                assertThat(pieces).isEqualTo(wanted ? 6 : 2);
            }
        }
    }

    @Test
    void aSenderDoesNotGoOnWithoutTheChecksumsThatItAskedFor() throws IOException {
        var from = placement(arena, 1, 64, 1);
        int[][] answers = {{0, HostWire.WAY_SENT, 0}, {0, HostWire.WAY_SENT, 2}, {0, 2, 1}};
        for (var answer : answers) {
            try (var played = new Played(WITHIN, Checksum.ALWAYS, from)) {
                played.answer(answer);
                assertThat(code(await(played.sent))).isEqualTo(ErrorCode.PROTOCOL);
            }
        }
    }

    /// As many blocks and bytes in all, in parts that differ.
    @ParameterizedTest
    @EnumSource
    void endsWhosePartsDifferFindOut(Checksum checksum) {
        for (var ways : Ways.values()) {
            var sender = plane(WITHIN, ways, checksum);
            var receiver = plane(WITHIN, ways, checksum);
            var one = placement(arena, 1, 64, 1).parts().getFirst();
            var two = placement(arena, 1, 64, 1, 2).parts().getFirst();
            var three = placement(arena, 1, 64, 1, 2, 3).parts().getFirst();
            var here = new Placement(List.of(three, one));
            for (var there : List.of(List.of(two, two), List.of(one, three))) {
                var run = new PlaneRuns.Run(sender, receiver, here, new Placement(there));
                run.sending.commit();
                assertThat(code(await(run.received))).isEqualTo(ErrorCode.PROTOCOL);
                assertThat(await(run.sent)).isInstanceOf(Outcome.Failed.class);
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void bothEndsAgreeWhateverTheyWant(Checksum there) {
        for (var address : List.of(WITHIN, BETWEEN)) {
            for (var here : Checksum.values()) {
                for (var ways : Ways.values()) {
                    var sender = plane(WITHIN, ways, here);
                    var receiver = plane(address, ways, there);
                    var from = placement(arena, 3, 4096, 5, 6, 7, 1, 0);
                    fill(from, new Random(3));
                    var to = placement(arena, 3, 4096, 1, 2, 9, 8, 7);
                    new PlaneRuns.Run(sender, receiver, from, to).assertArrives();
                }
            }
        }
    }

    /// Parts without blocks are those of layers of which the decoder has all.
    @ParameterizedTest
    @EnumSource
    void partsWithoutBlocksArePassedOver(Checksum checksum) {
        for (var ways : Ways.values()) {
            var sender = plane(WITHIN, ways, checksum);
            var receiver = plane(WITHIN, ways, checksum);
            var empty = placement(arena, 1, 64).parts().getFirst();
            var from = placement(arena, 1, 64, 1, 2).parts().getFirst();
            var to = placement(arena, 1, 64, 3, 4).parts().getFirst();
            for (int full = 0; full < 3; full++) {
                var source = new ArrayList<>(List.of(empty, empty, empty));
                var target = new ArrayList<>(source);
                source.set(full, from);
                target.set(full, to);
                new PlaneRuns.Run(sender, receiver, new Placement(source), new Placement(target))
                        .assertArrives();
            }
        }
    }

    @Test
    void aPeerOfAnotherVersionIsRefusedWithAReason() throws IOException {
        var receiver = plane(WITHIN, Ways.ANY, Checksum.AUTO);
        var grant = Grant.draw();
        var received = new CompletableFuture<Outcome>();
        receiver.receive(grant, placement(arena, 1, 64, 1), Deadline.in(SOON), received::complete);
        for (int version : new int[] {3, HostWire.VERSION + 1}) {
            try (var channel = connect(receiver)) {
                var hello = HostWire.hello(new GrantProof(grant).name(), GrantProof.nonce());
                HostWire.writeFully(channel, hello.putInt(Integer.BYTES, version));
                assertThat(HostWire.readInt(channel, number))
                        .isEqualTo(ErrorCode.INCOMPATIBLE.wire());
            }
        }
        assertThat(received).as("untouched").isNotDone();
    }
}
