// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.internal.Incarnation;
import io.kvferry.backend.mooncake.te.internal.tcp.DataFrames;
import io.kvferry.backend.mooncake.te.peers.RawSocket;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.lang.foreign.ValueLayout;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/// The data port while one host has as many connections as it gets.
class CrowdedDataPortTest {
    /// More than the port has in all.
    private static final int SLOW = 1_100;

    private static final Duration LIMIT = Duration.ofSeconds(60);

    private static JavaTransferEngine engine(String... more) {
        var options = new java.util.HashMap<String, String>(Map.of("shared-memory", "false"));
        for (int i = 0; i < more.length; i += 2) {
            options.put(more[i], more[i + 1]);
        }
        return JavaTransferEngine.start(EngineConfig.from(options));
    }

    @Test
    void slowConnectionsOfOneHostLeaveRoomForAnother() throws IOException {
        var slow = new ArrayList<RawSocket>();
        try (var target = engine();
                var early = engine();
                var late = engine()) {
            var far = target.allocate(4096);
            assertThat(write(early, target, far)).isInstanceOf(EngineOutcome.Completed.class);
            int port = DataPortTest.dataPort(target);
            for (int i = 0; i < SLOW; i++) {
                var socket = new RawSocket(port, "127.0.0.2");
                slow.add(socket);
                sendIfOpen(socket);
            }
            assertThat(write(early, target, far)).isInstanceOf(EngineOutcome.Completed.class);
            // One that has made room keeps its buffers until its thread has run.
            var limit = Deadline.in(LIMIT);
            while (!(write(late, target, far) instanceof EngineOutcome.Completed)) {
                assertThat(limit.passed()).as("no room for another host").isFalse();
            }
        } finally {
            for (var socket : slow) {
                socket.close();
            }
        }
    }

    private static EngineOutcome write(
            JavaTransferEngine from, JavaTransferEngine to, RegisteredMemory far) {
        var near = from.allocate(4096);
        return from.transfer(
                EngineRequest.write(
                        to.info().segmentName(),
                        Ranges.of(near.address(), far.address(), 4096),
                        Deadline.in(LIMIT)));
    }

    private static boolean sendIfOpen(RawSocket socket) {
        try {
            socket.send(new byte[1]);
            return true;
        } catch (IOException _) { // it has made room for the next one
            return false;
        }
    }

    @Test
    void headersThatTrickleAreCutOff() throws Exception {
        try (var target = engine("stall-timeout-ms", "700")) {
            int port = DataPortTest.dataPort(target);
            try (var peer = new RawSocket(port)) {
                assertTricklesNoFurtherThan(DataFrames.HEADER - 1, peer);
            }
            var memory = target.allocate(4096);
            int entries = 4;
            var message = ByteBuffer.allocate(24 + 24).order(ByteOrder.LITTLE_ENDIAN);
            message.put(RawSocket.header(4 * 8, entries, DataFrames.BATCH_READ));
            message.putLong(Incarnation.shortForm(target.info().incarnation()));
            try (var peer = new RawSocket(port)) {
                peer.send(message.array());
                assertTricklesNoFurtherThan(entries * DataFrames.BATCH_ENTRY - 1, peer);
            }
            assertThat(memory.bytes()).isEqualTo(4096);
        }
    }

    /// WRITEs whose bytes pass through the staging buffer, and such as go straight to memory.
    @ParameterizedTest
    @CsvSource({"20000, false", "20000, true", "1000000, false", "1000000, true"})
    void bodiesThatTrickleAreCutOff(int bytes, boolean batch) throws Exception {
        try (var target = engine("stall-timeout-ms", "700")) {
            var memory = target.allocate(bytes);
            try (var grant = target.grant(memory.address(), bytes);
                    var peer = new RawSocket(DataPortTest.dataPort(target))) {
                peer.send(head(target, grant, memory, bytes, batch));
                assertTricklesNoFurtherThan(200, peer);
            }
            memory.close(); // nobody uses it any more
        }
    }

    private static byte[] head(
            JavaTransferEngine target,
            WriteGrant grant,
            RegisteredMemory memory,
            int bytes,
            boolean batch) {
        return batch
                ? RawSocket.batchWrite(target, grant.token(), memory.address(), bytes)
                : RawSocket.header(bytes, memory.address(), DataFrames.WRITE);
    }

    /// Takes several times the limit in all. A machine that stands still for longer than the limit
    /// makes an end of it all the same, though hardly each time.
    @Test
    void aBodyThatArrivesSlowlyButSteadilyIsNot() throws Exception {
        for (int tries = 1; !arrivesSteadily(); tries++) {
            assertThat(tries).as("cut off, so many times").isLessThan(5);
        }
    }

    private static boolean arrivesSteadily() throws Exception {
        int pieces = 80;
        int piece = 16 << 10;
        try (var target = engine("stall-timeout-ms", "3000")) {
            var memory = target.allocate((long) pieces * piece);
            try (var grant = target.grant(memory.address(), memory.bytes());
                    var peer = new RawSocket(DataPortTest.dataPort(target))) {
                peer.send(head(target, grant, memory, pieces * piece, true));
                var bytes = new byte[piece];
                Arrays.fill(bytes, (byte) 7);
                for (int i = 0; i < pieces; i++) {
                    peer.send(bytes);
                    TimeUnit.MILLISECONDS.sleep(100);
                }
                var status = peer.receive(16);
                if (status.length < 16) {
                    return false;
                }
                assertThat(status).startsWith(0, 0, 0, 0);
            } catch (SocketException e) {
                return false; // cut off
            }
            assertThat(memory.memory().get(ValueLayout.JAVA_BYTE, memory.bytes() - 1))
                    .isEqualTo((byte) 7);
            return true;
        }
    }

    /// A byte every 200 ms, which is no stall. When the limit is over it waits for the machine.
    private static void assertTricklesNoFurtherThan(int bytes, RawSocket peer) throws Exception {
        int sent = 0;
        while (sent < bytes && sendIfOpen(peer)) {
            sent++;
            TimeUnit.MILLISECONDS.sleep(sent < 8 ? 200 : 650);
        }
        assertThat(sent).isLessThan(bytes);
    }
}
