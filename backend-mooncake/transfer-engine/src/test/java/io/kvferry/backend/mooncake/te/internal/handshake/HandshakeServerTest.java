// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.handshake;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.peers.RawSocket;
import io.kvferry.backend.mooncake.te.peers.ScriptedPeer;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;
import io.kvferry.toolkit.net.HostNames;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// The handshake port with recorded bytes of native nodes, and with invalid bytes.
@SuppressWarnings("NullAway.Init")
class HandshakeServerTest {
    private JavaTransferEngine engine;
    private int port;

    @BeforeEach
    void start() {
        engine =
                JavaTransferEngine.start(
                        EngineConfig.from(
                                Map.of("handshake-timeout-ms", "60000", "max-notifications", "2")));
        port = engine.info().rpcPort();
    }

    @AfterEach
    void close() {
        engine.close();
    }

    private static byte[] frame(int type, String json) {
        byte[] text = json.getBytes(UTF_8);
        return ByteBuffer.allocate(9 + text.length)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putLong(1L + text.length)
                .put((byte) type)
                .put(text)
                .array();
    }

    private String ask(byte[] request) throws IOException {
        return ask(port, request);
    }

    private static String ask(int port, byte[] request) throws IOException {
        try (var peer = new RawSocket(port)) {
            return new String(peer.send(request).drain(), UTF_8);
        }
    }

    @Test
    void answersAProbeWithTheBytesOfANativeNode() throws IOException {
        try (var peer = new RawSocket(port)) {
            byte[] reply = peer.sendHex("0400000000000000 03 7b7d0a").drain();
            assertThat(reply).isEqualTo(frame(3, "{\"status\":\"success\"}\n"));
            assertThat(reply[0]).isEqualTo((byte) 0x16);
        }
    }

    @Test
    void takesANotificationThatArrivesInThreeWrites() throws IOException {
        try (var peer = new RawSocket(port)) {
            peer.sendHex("2800000000000000")
                    .sendHex("02")
                    .send("{\"name\":\"jname\",\"notify_msg\":\"jmsg-1\"}\n".getBytes(UTF_8));
            byte[] reply = peer.drain();
            assertThat(reply).isEqualTo(frame(2, "{\"name\":\"\",\"notify_msg\":\"success\"}\n"));
            assertThat(reply[0]).isEqualTo((byte) 0x24);
        }
        assertThat(engine.takeNotifications(10))
                .containsExactly(new Notification("jname", "jmsg-1"));
    }

    @Test
    void refusesNotificationsBeyondItsBound() throws IOException {
        String notification = "{\"name\":\"n\",\"notify_msg\":\"m\"}";
        assertThat(ask(frame(2, notification))).contains("success");
        assertThat(ask(frame(2, notification))).contains("success");
        assertThat(ask(frame(2, notification))).endsWith("{\"name\":\"\",\"notify_msg\":\"\"}\n");
        assertThat(engine.takeNotifications(10)).hasSize(2);
        assertThat(ask(frame(2, notification))).contains("success");
    }

    @Test
    void manyConnectionsOfOneHostMakeRoomForEachOther() throws IOException {
        var strangers = new ArrayList<RawSocket>();
        try (var patient =
                        JavaTransferEngine.start(
                                EngineConfig.from(Map.of("handshake-timeout-ms", "60000")));
                var honest = new RawSocket(patient.info().rpcPort())) {
            honest.sendHex("0400000000000000");
            for (int i = 0; i < 1_100; i++) { // more than the port has in all
                strangers.add(new RawSocket(patient.info().rpcPort(), "127.0.0.2"));
            }
            strangers.getFirst().drain(); // it has made room, so all have been accepted but a few
            assertThat(new String(honest.sendHex("03 7b7d0a").drain(), UTF_8)).contains("success");
        } finally {
            for (var stranger : strangers) {
                stranger.close();
            }
        }
    }

    @Test
    void boundsTheBytesOfNotificationsThatNobodyTakes() throws IOException {
        try (var bounded =
                JavaTransferEngine.start(
                        EngineConfig.from(Map.of("max-notification-bytes", "100000")))) {
            String big = "{\"name\":\"n\",\"notify_msg\":\"" + "m".repeat(30_000) + "\"}";
            assertThat(ask(bounded.info().rpcPort(), frame(2, big))).contains("success");
            assertThat(ask(bounded.info().rpcPort(), frame(2, big))).doesNotContain("success");
            assertThat(bounded.takeNotifications(10)).hasSize(1);
            assertThat(ask(bounded.info().rpcPort(), frame(2, big))).contains("success");
        }
    }

    @Test
    void answersAnRdmaConnectionRequestWithAnEmptyOneInBothProtocols() throws IOException {
        String empty =
                "{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"payload\":\"\","
                        + "\"peer_nic_path\":\"\",\"qp_num\":[],\"reply_msg\":\"\"}\n";
        try (var peer = new RawSocket(port)) {
            assertThat(peer.send(frame(0, "{\"local_nic_path\":\"a@b\"}")).drain())
                    .isEqualTo(frame(0, empty));
        }
        try (var old = new RawSocket(port)) {
            old.send(
                    ByteBuffer.allocate(10)
                            .order(ByteOrder.LITTLE_ENDIAN)
                            .putLong(2)
                            .put("{}".getBytes(UTF_8))
                            .array());
            byte[] reply = old.drain();
            assertThat(new String(reply, 8, reply.length - 8, UTF_8)).isEqualTo(empty);
            assertThat(ByteBuffer.wrap(reply).order(ByteOrder.LITTLE_ENDIAN).getLong())
                    .isEqualTo(empty.length());
        }
    }

    @Test
    void answersTheMetadataRequestOfANativeNodeInItsForm() throws IOException {
        RegisteredMemory memory = engine.allocate(1 << 20);
        String native0312 =
                "{\"buffers\":[],\"name\":\"127.0.0.1:16840\",\"protocol\":\"tcp\",\"tcp_data_port\":16643,"
                        + "\"tcp_proto_version\":2,\"timestamp\":\"2026-11-21 00:11:47.483533\"}\n";
        assertThat(frame(1, native0312)[0]).isEqualTo((byte) 0x8f);
        String name = engine.info().segmentName();

        assertThat(ask(frame(1, native0312)).substring(9))
                .matches(
                        ("\\{\"buffers\":\\[\\{\"addr\":%d,\"length\":1048576,\"name\":\"%s\"}],"
                                        + "\"kvferry\":\\{\"incarnation\":\"%s\",\"shared\":(true|false),\"version\":3},"
                                        + "\"name\":\"%s\",\"protocol\":\"tcp\",\"tcp_data_port\":\\d+,"
                                        + "\"tcp_proto_version\":2,"
                                        + "\"timestamp\":\"\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d\\.\\d{6}\"}\n")
                                .formatted(
                                        memory.address(), name, engine.info().incarnation(), name));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "0000000000000000",
                "0100100000000000 02",
                "ffffffffffffffff 02",
                "ffffffffffffff7f 01",
                "0300000000000000 09 7b7d",
                "0300000000000000 80 7b7d",
                "0300000000000000 ff 7b7d",
                "0500000000000000 02 5b5d0a0a",
                "0300000000000000 00 5b5d",
                "0900000000000000 02 6e6f6a736f6e2121",
                "0200000000000000 7b22",
            })
    void dropsMalformedFramesWithoutAnAnswer(String hex) throws IOException {
        try (var peer = new RawSocket(port)) {
            assertThat(peer.sendHex(hex).endOutput().drain()).isEmpty();
        }
        answersAProbeWithTheBytesOfANativeNode();
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{\"name\":{},\"notify_msg\":\"m\"}",
                "{\"name\":\"n\",\"notify_msg\":[\"m\"]}",
                "{\"name\":\"n\"}",
                "\"text\"",
                "[[[[",
                "{\"name\":\"n\",\"name\":\"n\",\"notify_msg\":\"m\"}"
            })
    void dropsNotificationsOfWrongTypes(String json) throws IOException {
        assertThat(ask(frame(2, json))).isEmpty();
        assertThat(engine.takeNotifications(1)).isEmpty();
    }

    @Test
    void servesOthersWhileClientsAreSilentOrSendGarbage() throws IOException {
        List<RawSocket> silent = new ArrayList<>();
        try {
            sendGarbage(port, silent);
            long began = System.nanoTime();
            answersAProbeWithTheBytesOfANativeNode();
            assertThat(Duration.ofNanos(System.nanoTime() - began))
                    .isLessThan(Duration.ofSeconds(20));
        } finally {
            for (RawSocket socket : silent) {
                socket.close();
            }
        }
    }

    private static void sendGarbage(int port, List<RawSocket> to) throws IOException {
        var random = new Random();
        for (int i = 0; i < 50; i++) {
            byte[] garbage = new byte[random.nextInt(200)];
            random.nextBytes(garbage);
            to.add(new RawSocket(port).send(garbage));
        }
    }

    @Test
    void clientsThatAreSilentOrSendGarbageAreGoneAfterTheHandshakeTimeout() throws IOException {
        List<RawSocket> silent = new ArrayList<>();
        var settings = Map.of("handshake-timeout-ms", "500");
        try (var hasty = JavaTransferEngine.start(EngineConfig.from(settings))) {
            sendGarbage(hasty.info().rpcPort(), silent);
            for (RawSocket socket : silent) {
                socket.drain();
            }
        } finally {
            for (RawSocket socket : silent) {
                socket.close();
            }
        }
    }

    @Test
    void servesOthersWhileSilentOnesTakeEveryPlace() throws IOException {
        var settings = Map.of("handshake-timeout-ms", "60000");
        var silent = new ArrayList<Socket>();
        try (var patient = JavaTransferEngine.start(EngineConfig.from(settings))) {
            for (int i = 0; i < 1_100; i++) {
                silent.add(new Socket("127.0.0.1", patient.info().rpcPort()));
            }
            for (int i = 0; i < 3; i++) {
                assertThat(ask(patient.info().rpcPort(), frame(3, "{}"))).contains("success");
            }
        } finally {
            for (var socket : silent) {
                socket.close();
            }
        }
    }

    @Test
    void clientNamesTheReasonWhenThePeerIsSilentOrGoneOrSpeaksNonsense() throws IOException {
        try (var silent = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
            assertThatThrownBy(() ->
                            engine.open(
                                    "127.0.0.1:" + silent.getLocalPort(),
                                    Deadline.in(Duration.ofMillis(300))))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
        }
        assertThatThrownBy(() -> engine.open("127.0.0.1:1", Deadline.in(Duration.ofSeconds(60))))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.PEER_LOST));
        for (String document :
                List.of(
                        "null",
                        "[]",
                        "{\"name\":\"x\",\"protocol\":[\"tcp\"],\"tcp_data_port\":1}",
                        "{\"name\":\"x\",\"protocol\":\"tcp\",\"tcp_data_port\":\"1\"}",
                        "{\"name\":\"x\",\"protocol\":\"tcp\",\"tcp_data_port\":70000}",
                        "{\"name\":\"x\",\"protocol\":\"tcp\",\"buffers\":[{\"addr\":-1,\"length\":1,\"name\":\"x\"}]}",
                        "{\"name\":\"x\",\"protocol\":\"rdma\",\"devices\":[]}")) {
            try (var answering = new ScriptedPeer(request -> frame(1, document))) {
                assertThatThrownBy(() ->
                                engine.open(answering.name(), Deadline.in(Duration.ofSeconds(60))))
                        .as(document)
                        .isInstanceOfSatisfying(
                                KvFerryException.class,
                                e ->
                                        assertThat(e.code())
                                                .isIn(ErrorCode.PROTOCOL, ErrorCode.INCOMPATIBLE));
            }
        }
    }

    /// A name server that says nothing.
    @Test
    void aQuestionEndsByItsDeadlineWhileTheNameOfThePeerIsLookedUp() {
        var release = new CountDownLatch(1);
        var names =
                new HostNames(host -> {
                    try {
                        var _ = release.await(60, TimeUnit.SECONDS);
                    } catch (InterruptedException e) {
                        Thread.currentThread().interrupt();
                    }
                    throw new UnknownHostException(host);
                });
        var limit = Duration.ofSeconds(30);
        var client = new HandshakeClient(limit, limit, 1 << 20, Optional.empty(), names);
        var question = new Handshake.Message(Handshake.METADATA, new byte[0]);
        try {
            assertThatThrownBy(() ->
                            client.ask(
                                    new HostPort("there", 1),
                                    question,
                                    Deadline.in(Duration.ofMillis(50)),
                                    new Cancellation()))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
            assertThat(release.getCount()).isOne();
        } finally {
            release.countDown();
        }
    }
}
