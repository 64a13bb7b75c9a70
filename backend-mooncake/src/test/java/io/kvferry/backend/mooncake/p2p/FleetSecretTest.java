// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapClient;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.p2p.bootstrap.WorkerRegistration;
import io.kvferry.backend.mooncake.p2p.testkit.ListeningPorts;
import io.kvferry.backend.mooncake.p2p.testkit.Stranger;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.te.internal.tcp.DataFrames;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.toolkit.secret.FleetSecret;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// Engines of a fleet with a secret, those who do not know it, and prefillers without capabilities.
class FleetSecretTest {
    @TempDir private Path folder;

    private Map<String, Object> secret(String text) throws IOException {
        var file = folder.resolve(text);
        Files.writeString(file, text);
        return Map.of("secret_file", file.toString());
    }

    /// With short limits for peers that do not answer.
    private static Map<String, Object> hasty(Map<String, Object> options) {
        var all = new HashMap<>(options);
        all.put("connector_timeout", "3s");
        return all;
    }

    private static TestEngine engine(KvRole role, String id, Map<String, Object> options) {
        return new TestEngine(Shape.SMALL, role, id, options);
    }

    @Test
    void aFleetOfOneSecretHandsOverAndOthersGetNothing() throws Exception {
        var ours = secret("0123456789abcdef");
        try (var p = engine(KvRole.PRODUCER, "p", ours);
                var d = engine(KvRole.CONSUMER, "d", ours);
                var other = engine(KvRole.CONSUMER, "o", hasty(secret("fedcba9876543210")));
                var none = engine(KvRole.CONSUMER, "n", hasty(Map.of()))) {
            var hold = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 9);
            for (var stranger : new TestEngine[] {other, none}) {
                var target = stranger.request("s", 64, 20, prefillAt(p.bootstrap, "p", "x"));
                assertThat(stranger.await(stranger.beginDecode(target, 0)))
                        .isInstanceOf(Completion.Failed.class);
                stranger.assertUntouched(target);
            }
            assertThat(p.resultNow(hold)).isEmpty();
            var target = d.request("d", 64, 20, prefillAt(p.bootstrap, "p", "x"));
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 9);
            var base = URI.create(p.bootstrap);
            try (var stranger = new BootstrapClient(TestEngine.SOON)) {
                assertThatThrownBy(() -> stranger.query(base)).hasMessageContaining("401");
                var fake = new WorkerRegistration("f", 1, 0, 0, "tcp://h:1", Optional.empty());
                assertThatThrownBy(() -> stranger.register(base, fake)).hasMessageContaining("401");
            }
            var known = Optional.of(FleetSecret.read(folder.resolve("0123456789abcdef")));
            try (var member = new BootstrapClient(TestEngine.SOON, known)) {
                assertThat(member.query(base)).hasSize(1);
            }
        }
    }

    @Test
    void aPrefillerWithoutCapabilitiesIsRefusedWhereTheyAreRequired() throws Exception {
        try (var bootstrap = BootstrapServer.start("127.0.0.1", 0);
                var client = new BootstrapClient(TestEngine.SOON);
                var d = engine(KvRole.CONSUMER, "d", Map.of("require_capability", true))) {
            var base = "http://127.0.0.1:" + bootstrap.port();
            client.register(
                    URI.create(base),
                    new WorkerRegistration("vllm", 0, 0, 0, "tcp://127.0.0.1:9", Optional.empty()));
            var target = d.request("d", 64, 20, prefillAt(base, "vllm", "x"));
            assertThat(d.await(d.beginDecode(target, 0)))
                    .isInstanceOfSatisfying(
                            Completion.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.INCOMPATIBLE));
        }
    }

    @Test
    void aBootstrapAddressWithAnImpossiblePortFailsAtOnce() {
        try (var d = engine(KvRole.CONSUMER, "d", Map.of())) {
            var target = d.request("d", 64, 20, prefillAt("http://127.0.0.1:70000", "p", "x"));
            assertThat(d.await(d.beginDecode(target, 0)))
                    .isInstanceOfSatisfying(
                            Completion.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.INVALID_REQUEST));
        }
    }

    @Test
    void portsAreDrawnFromTheConfiguredRange() throws Exception {
        var range = Map.<String, Object>of("min_port", 20_000, "max_port", 29_999);
        var before = ListeningPorts.now();
        try (var p = engine(KvRole.PRODUCER, "p", range);
                var _ = engine(KvRole.CONSUMER, "d", range)) {
            var ports = ListeningPorts.now();
            ports.removeAll(before);
            ports.remove(URI.create(p.bootstrap).getPort()); // which has an option of its own
            assertThat(ports)
                    .as("data and handshake of both, side channel")
                    .hasSize(5)
                    .contains(URI.create(Stranger.sideChannel(p)).getPort())
                    .allMatch(port -> port >= 20_000 && port <= 29_999);
        }
    }

    @Test
    void whoReachesAnyPortWithoutTheSecretReadsAndWritesNothing() throws Exception {
        var ours = secret("0123456789abcdef");
        try (var vllm = new Stranger(Generation.G7, 3, 4, 1024)) {
            attackPorts(ours, vllm);
        }
    }

    private static void attackPorts(Map<String, Object> ours, Stranger vllm) throws IOException {
        var before = ListeningPorts.now();
        try (var p = engine(KvRole.PRODUCER, "p", ours);
                var d = engine(KvRole.CONSUMER, "d", ours)) {
            var prefilled = p.request("p-1", 64, 5, decodeElsewhere("x"));
            p.prefill(prefilled, 9);
            // Its window is open: its prefill does not come before the attack is over.
            var target = d.request("d", 64, 20, prefillAt(p.bootstrap, "p", "y"));
            var load = d.beginDecode(target, 0);
            var ports = ListeningPorts.now();
            ports.removeAll(before);
            assertThat(ports)
                    .as("data and handshake of both, side channel and bootstrap")
                    .hasSize(6);
            for (int port : ports) {
                attack(port, p.regions.get(0).get(0).segment().address(), vllm);
                attack(port, d.regions.get(0).get(0).segment().address(), vllm);
            }
            p.assertHolds(prefilled, 0, 9);
            d.assertUntouched(target);
            p.prefill(p.request("p-2", 64, 30, decodeElsewhere("y")), 4);
            assertThat(d.await(load)).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 4);
        }
    }

    /// Says everything that some port would answer without a secret.
    private static void attack(int port, long address, Stranger vllm) throws IOException {
        var openings = new ArrayList<byte[]>();
        for (int type = 0; type < 4; type++) { // of the handshake: documents, notifications, probes
            openings.add(
                    little(64).putLong(4).put((byte) type).put("{}\n".getBytes(UTF_8)).array());
        }
        for (int opcode :
                new int[] {
                    DataFrames.READ,
                    DataFrames.READ | DataFrames.V2,
                    DataFrames.WRITE,
                    DataFrames.WRITE | DataFrames.V2,
                    DataFrames.BATCH_READ,
                    DataFrames.BATCH_WRITE
                }) {
            openings.add(
                    little(24 + 512)
                            .putLong(256)
                            .putLong(opcode < DataFrames.BATCH_READ ? address : 1)
                            .putLong(opcode)
                            .putLong(0)
                            .putLong(0)
                            .putLong(0)
                            .putLong(address)
                            .putLong(256)
                            .array());
        }
        for (var line : List.of("GET /query", "GET /metadata?key=x", "POST /register")) {
            openings.add(
                    (line + " HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}").getBytes(UTF_8));
        }
        openings.add(little(72).put("KVFERRY1".getBytes(UTF_8)).array());
        openings.add(zmtp(vllm.request("x", 0, 4)));
        for (var opening : openings) {
            var answer = say(port, opening);
            var text = new String(answer, ISO_8859_1);
            if (text.startsWith("HTTP/")) {
                assertThat(text).startsWith("HTTP/1.1 40").doesNotContain("tcp://", "worker");
            } else {
                // A greeting with the mechanism, or a random number and its tag.
                assertThat(answer).as("port %s answers %s", port, text).hasSizeLessThan(100);
                assertThat(text).doesNotContain("protocol", "127.0.0.1", "MCTV", "KVFY");
            }
        }
    }

    private static ByteBuffer little(int bytes) {
        return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    /// A peer without keys, as vLLM's: greeting, READY and a request.
    private static byte[] zmtp(byte[] request) {
        var ready = "\5READY\13Socket-Type\0\0\0\6DEALER".getBytes(ISO_8859_1);
        var out = ByteBuffer.allocate(64 + 2 + ready.length + 2 + 9 + request.length);
        out.put((byte) 0xFF).putLong(1).put((byte) 0x7F).put((byte) 3).put((byte) 1);
        out.put("NULL".getBytes(UTF_8)).position(64);
        out.put((byte) 4).put((byte) ready.length).put(ready);
        out.put((byte) 1).put((byte) 0);
        return out.put((byte) 2).putLong(request.length).put(request).array();
    }

    /// All that is answered until the port closes the connection or falls silent.
    private static byte[] say(int port, byte[] opening) throws IOException {
        try (var socket = new Socket("127.0.0.1", port)) {
            socket.setSoTimeout(2_000);
            var answer = new ByteArrayOutputStream();
            try {
                socket.getOutputStream().write(opening);
                socket.shutdownOutput();
                socket.getInputStream().transferTo(answer);
            } catch (SocketException | SocketTimeoutException e) {
                return answer.toByteArray(); // cut off, or left waiting: nothing more was said
            }
            return answer.toByteArray();
        }
    }
}
