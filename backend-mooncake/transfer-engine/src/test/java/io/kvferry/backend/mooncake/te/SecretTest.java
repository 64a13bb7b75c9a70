// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.backend.mooncake.te.internal.metadata.HttpMetadataStore;
import io.kvferry.backend.mooncake.te.internal.tcp.DataFrames;
import io.kvferry.backend.mooncake.te.peers.RawSocket;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.net.Cancellation;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.secret.HttpSignature;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/// Engines of a fleet with a secret, and those who do not know it.
class SecretTest {
    private static final Duration LIMIT = Duration.ofSeconds(60);
    private static final Duration LONG = Duration.ofMinutes(10);
    private static final String SECRET = "0123456789abcdef0123456789abcdef";

    @TempDir private Path folder;

    private Map<String, String> settings(String secret) throws IOException {
        return settings(secret, "60000");
    }

    private Map<String, String> settings(String secret, String handshakeMillis) throws IOException {
        var settings = new HashMap<String, String>();
        settings.put("shared-memory", "false");
        settings.put("handshake-timeout-ms", handshakeMillis);
        if (!secret.isEmpty()) {
            var file = folder.resolve("secret-" + secret.hashCode());
            Files.writeString(file, secret);
            settings.put("secret-file", file.toString());
        }
        return settings;
    }

    private JavaTransferEngine engine(String secret) throws IOException {
        return JavaTransferEngine.start(EngineConfig.from(settings(secret)));
    }

    private JavaTransferEngine hasty(String secret) throws IOException {
        return JavaTransferEngine.start(EngineConfig.from(settings(secret, "2000")));
    }

    private static EngineOutcome copy(
            boolean write, JavaTransferEngine near, JavaTransferEngine far, long remote) {
        var memory = near.allocate(4096);
        Bytes.fill(memory.memory(), 3);
        var ranges = Ranges.of(memory.address(), remote, 4096);
        var by = Deadline.in(LIMIT);
        var name = far.info().segmentName();
        return near.transfer(
                write
                        ? EngineRequest.write(name, ranges, by)
                        : EngineRequest.read(name, ranges, by));
    }

    @Test
    void enginesOfOneSecretReadWriteAndNotify() throws Exception {
        try (var near = engine(SECRET);
                var far = engine(SECRET)) {
            var memory = far.allocate(4096);
            assertThat(copy(true, near, far, memory.address()))
                    .isInstanceOf(EngineOutcome.Completed.class);
            assertThat(Bytes.mismatch(memory.memory(), 0, 4096, 3)).isEqualTo(-1);
            assertThat(copy(false, near, far, memory.address()))
                    .isInstanceOf(EngineOutcome.Completed.class);
            near.send(far.info().segmentName(), new Notification("n", "m"), Deadline.in(LIMIT));
            assertThat(far.takeNotifications(2)).containsExactly(new Notification("n", "m"));
        }
    }

    @Test
    void whoDoesNotKnowTheSecretReadsAndWritesNothing() throws Exception {
        // Those who do not understand each other wait for it.
        try (var far = hasty(SECRET);
                var none = hasty("");
                var other = hasty(SECRET + "x")) {
            var memory = far.allocate(4096);
            var before = memory.memory().toArray(java.lang.foreign.ValueLayout.JAVA_BYTE);
            for (var stranger : new JavaTransferEngine[] {none, other}) {
                for (boolean write : new boolean[] {true, false}) {
                    assertThat(copy(write, stranger, far, memory.address()))
                            .isInstanceOf(EngineOutcome.Failed.class);
                    var theirs = stranger.allocate(4096);
                    assertThat(copy(write, far, stranger, theirs.address()))
                            .as("nor does it give them anything")
                            .isInstanceOf(EngineOutcome.Failed.class);
                }
            }
            assertThat(memory.memory().toArray(java.lang.foreign.ValueLayout.JAVA_BYTE))
                    .isEqualTo(before);
        }
    }

    @Test
    void aStrangerHearsNothingOnEitherPort() throws Exception {
        try (var far = engine(SECRET)) {
            var memory = far.allocate(4096);
            int handshake = far.info().rpcPort();
            try (var peer = new RawSocket(handshake)) {
                peer.sendHex("0400000000000000 03 7b7d0a" + "00".repeat(40));
                assertThat(peer.drain()).isEmpty();
            }
            var config = EngineConfig.from(settings(SECRET));
            int data = DataPortTest.dataPort(far, config.auth(PeerAuth.Kind.HANDSHAKE));
            for (int opcode : new int[] {DataFrames.READ, DataFrames.READ | DataFrames.V2}) {
                try (var peer = new RawSocket(data)) {
                    // In one piece: the server may hang up before a second one is sent.
                    var header = RawSocket.header(64, memory.address(), opcode);
                    var twice = ByteBuffer.allocate(2 * header.length).put(header).put(header);
                    assertThat(peer.send(twice.array()).drain()).isEmpty();
                }
            }
            try (var peer = new RawSocket(data)) {
                // The right form, and no secret: the server's own words are of no use.
                peer.send("KVFERRY1".getBytes(US_ASCII));
                peer.send(new byte[32]);
                byte[] answer = peer.receive(64);
                var read = RawSocket.header(64, memory.address(), DataFrames.READ);
                var rest = ByteBuffer.allocate(32 + read.length).put(answer, 32, 32).put(read);
                assertThat(peer.send(rest.array()).drain()).isEmpty();
            }
        }
    }

    @Test
    void theMetadataServerOfAFleetServesItsMembersOnly() throws Exception {
        var known = FleetSecret.read(Path.of(settings(SECRET).get("secret-file")));
        var wrong = FleetSecret.read(Path.of(settings(SECRET + "x").get("secret-file")));
        try (var server = MetadataServer.start("127.0.0.1", 0, Optional.of(known));
                var member = store(server, Optional.of(known));
                var near = named(server, "near");
                var far = named(server, "far")) {
            var memory = far.allocate(4096);
            assertThat(copy(true, near, far, memory.address()))
                    .as("members find each other through it")
                    .isInstanceOf(EngineOutcome.Completed.class);
            member.put("key", "{\"a\":1}", Deadline.in(LIMIT));
            for (var secret : List.of(Optional.<FleetSecret>empty(), Optional.of(wrong))) {
                try (var stranger = store(server, secret)) {
                    var by = Deadline.in(LIMIT);
                    assertThatThrownBy(() -> stranger.get("key", by, new Cancellation()))
                            .hasMessageContaining("401");
                    assertThatThrownBy(() -> stranger.put("key", "{}", by))
                            .hasMessageContaining("401");
                    assertThatThrownBy(() -> stranger.remove("key", by))
                            .hasMessageContaining("401");
                }
            }
            assertThat(member.get("key", Deadline.in(LIMIT), new Cancellation()))
                    .contains("{\"a\":1}");
            var foreign = settings("");
            foreign.put("metadata", server.connection());
            foreign.put("name", "foreign");
            assertThatThrownBy(() -> JavaTransferEngine.start(EngineConfig.from(foreign)))
                    .hasMessageContaining("401");
        }
    }

    /// How its caller is done with a transfer.
    enum End {
        CLOSE(ErrorCode.CLOSED),
        CANCEL(ErrorCode.CANCELLED);

        private final ErrorCode outcome;

        End(ErrorCode outcome) {
            this.outcome = outcome;
        }
    }

    /// It takes connections, and does not prove that it knows the secret.
    @ParameterizedTest
    @EnumSource
    void whoIsDoneDoesNotWaitForAPeerThatSaysNothing(End end) throws Exception {
        var known = FleetSecret.read(Path.of(settings(SECRET).get("secret-file")));
        try (var server = MetadataServer.start("127.0.0.1", 0, Optional.of(known));
                var member = store(server, Optional.of(known));
                var near = named(server, "near");
                var silent = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            var by = Deadline.in(LIMIT);
            member.put(
                    "mooncake/rpc_meta/silent",
                    "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":1}",
                    by);
            member.put(
                    "mooncake/ram/silent",
                    "{\"buffers\":[],\"name\":\"silent\",\"protocol\":\"tcp\",\"tcp_data_port\":"
                            + silent.getLocalPort()
                            + ",\"tcp_proto_version\":2}",
                    by);
            var memory = near.allocate(4096);
            var ranges = Ranges.of(memory.address(), 4096, 4096);
            var reading = near.submit(EngineRequest.read("silent", ranges, Deadline.in(LONG)));
            var outcome = reading.outcome().toCompletableFuture();
            try (var accepted = silent.accept()) {
                assertThat(accepted.getInputStream().readNBytes(8)).startsWith('K', 'V');
                if (end == End.CLOSE) {
                    CompletableFuture.runAsync(near::close).get(60, TimeUnit.SECONDS);
                } else {
                    reading.cancel();
                }
                assertThat(outcome.get(60, TimeUnit.SECONDS))
                        .isInstanceOfSatisfying(
                                EngineOutcome.Failed.class,
                                failed ->
                                        assertThat(failed.failure().code()).isEqualTo(end.outcome));
            }
        }
    }

    @Test
    void aSignedRequestForOneDocumentIsGoodForNoOther() throws Exception {
        var known = FleetSecret.read(Path.of(settings(SECRET).get("secret-file")));
        try (var server = MetadataServer.start("127.0.0.1", 0, Optional.of(known));
                var member = store(server, Optional.of(known));
                var http = HttpClient.newHttpClient()) {
            member.put("key", "old", Deadline.in(LIMIT));
            var sign =
                    HttpSignature.sign(
                            known, "PUT", "/metadata?key=other", "old".getBytes(US_ASCII));
            for (var body : List.of("old", "new")) {
                var request =
                        HttpRequest.newBuilder(URI.create(server.connection() + "?key=key"))
                                .header(HttpSignature.HEADER, sign)
                                .PUT(HttpRequest.BodyPublishers.ofString(body))
                                .build();
                assertThat(http.send(request, HttpResponse.BodyHandlers.ofString()).statusCode())
                        .isEqualTo(401);
            }
            assertThat(member.get("key", Deadline.in(LIMIT), new Cancellation())).contains("old");
        }
    }

    private static HttpMetadataStore store(MetadataServer server, Optional<FleetSecret> secret) {
        return new HttpMetadataStore(URI.create(server.connection()), secret);
    }

    private JavaTransferEngine named(MetadataServer server, String name) throws IOException {
        var settings = settings(SECRET);
        settings.put("metadata", server.connection());
        settings.put("name", name);
        settings.put("connect-timeout-ms", String.valueOf(LONG.toMillis()));
        settings.put("stall-timeout-ms", String.valueOf(LONG.toMillis()));
        return JavaTransferEngine.start(EngineConfig.from(settings));
    }
}
