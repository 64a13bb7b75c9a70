// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Map;
import java.util.Random;

class ProcessorRoomTest {
    @Test
    void leavesRoomToSpinForOneConnectionForEachTwoProcessors() {
        assertThat(new ProcessorRoom(1).leaveRoomToSpin()).as("one processor").isFalse();
        var room = new ProcessorRoom(5);
        assertThat(room.leaveRoomToSpin()).as("for a connection that was not used yet").isTrue();
        room.arrive();
        room.arrive();
        assertThat(room.leaveRoomToSpin()).as("two connections, five processors").isTrue();
        room.arrive();
        assertThat(room.leaveRoomToSpin()).as("three connections, five processors").isFalse();
        room.leave();
        assertThat(room.leaveRoomToSpin()).isTrue();
    }

    /// Both ends of a connection that rests between two requests are about to work: with two such
    /// connections on two processors, whoever looks again and again keeps the others from it.
    @Test
    void aConnectionCountsForAWhileAfterItsUse() throws Exception {
        var room = new ProcessorRoom(2);
        var config = EngineConfig.from(Map.of());
        try (var server = new ServerSocket(0, 4, InetAddress.getLoopbackAddress());
                var watchdog = new Watchdog("test");
                var first = unwatched(server, config, watchdog, room);
                var second = unwatched(server, config, watchdog, room)) {
            first.begin();
            second.begin();
            first.rest();
            second.rest();
            assertThat(room.taken()).isZero();
            assertThat(room.leaveRoomToSpin()).as("between two requests").isFalse();
            first.tick();
            second.tick();
            second.begin();
            second.rest();
            assertThat(room.leaveRoomToSpin()).as("no tick without a use yet").isFalse();
            first.tick();
            second.tick();
            assertThat(room.lately()).as("one was not used since the tick before").isEqualTo(1);
            assertThat(room.leaveRoomToSpin()).isTrue();
            first.begin();
            assertThat(room.leaveRoomToSpin()).as("both again").isFalse();
            for (int i = 0; i < 3; i++) {
                first.tick();
                second.tick();
            }
            assertThat(room.lately()).as("in use, however long").isEqualTo(1);
        }
        assertThat(room.lately()).isZero();
    }

    @Test
    void leavesATransferTheProcessorsThatNoConnectionKeepsBusy() {
        var room = new ProcessorRoom(3);
        assertThat(room.lanes()).isEqualTo(3);
        room.enter();
        assertThat(room.lanes()).isEqualTo(2);
        room.enter();
        room.enter();
        assertThat(room.lanes()).as("all are busy").isEqualTo(1);
        room.enter();
        assertThat(room.lanes()).as("more are busy than there are").isEqualTo(1);
        room.exit();
        room.exit();
        assertThat(room.lanes()).isEqualTo(1);
        room.exit();
        assertThat(room.lanes()).isEqualTo(2);
    }

    /// However its calls follow each other: a wire takes one place from its first beginning until
    /// it rests or is closed, whoever closes it.
    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3})
    void aWireTakesOnePlaceWhileItIsInUse(long seed) throws Exception {
        var random = new Random(seed);
        var room = new ProcessorRoom(8);
        var config = EngineConfig.from(Map.of());
        try (var server = new ServerSocket(0, 64, InetAddress.getLoopbackAddress());
                var watchdog = new Watchdog("test")) {
            for (int turn = 0; turn < 40; turn++) {
                var wires = new ArrayList<Wire>();
                var used = new boolean[4];
                for (int i = 0; i < used.length; i++) {
                    wires.add(wire(server, config, watchdog, room));
                }
                for (int step = 0; step < 50; step++) {
                    int i = random.nextInt(used.length);
                    int call = random.nextInt(5);
                    if (call == 4) {
                        wires.get(i).tick(); // of a watchdog, beside those of the real one
                        assertThat(room.lately()).isBetween(room.taken(), used.length);
                        continue;
                    }
                    switch (call) {
                        case 0 -> wires.get(i).begin();
                        case 1 -> wires.get(i).begin(Deadline.in(Duration.ofHours(1)));
                        case 2 -> wires.get(i).beginTogether();
                        default -> wires.get(i).rest();
                    }
                    used[i] = call < 3;
                    int taken = 0;
                    for (boolean each : used) {
                        taken += each ? 1 : 0;
                    }
                    assertThat(room.taken()).isEqualTo(taken);
                }
                var closers = new ArrayList<Thread>();
                for (var wire : wires) {
                    closers.add(Thread.ofPlatform().start(wire::tick));
                    for (int i = 0; i < 2; i++) {
                        closers.add(Thread.ofPlatform().start(wire::close));
                    }
                    wire.rest();
                    wire.begin(); // before it is closed, between or after
                }
                for (var closer : closers) {
                    assertThat(closer.join(Duration.ofSeconds(20))).isTrue();
                }
                assertThat(room.taken()).as("all are closed").isZero();
                assertThat(room.lately()).as("all are closed").isZero();
            }
        }
    }

    /// A wire whose ticks are the test's.
    private static Wire unwatched(
            ServerSocket server, EngineConfig config, Watchdog watchdog, ProcessorRoom room)
            throws IOException {
        var wire = wire(server, config, watchdog, room);
        watchdog.forget(wire);
        return wire;
    }

    private static Wire wire(
            ServerSocket server, EngineConfig config, Watchdog watchdog, ProcessorRoom room)
            throws IOException {
        var channel = SocketChannel.open(server.getLocalSocketAddress());
        server.accept().close();
        return new Wire(channel, config, watchdog, Staging.Pair.allocate(), room);
    }
}
