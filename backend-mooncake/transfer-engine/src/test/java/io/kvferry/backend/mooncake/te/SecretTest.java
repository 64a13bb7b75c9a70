// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.backend.mooncake.te.internal.tcp.DataFrames;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/// Engines of a fleet with a secret, and those who do not know it.
class SecretTest {
    private static final Duration LIMIT = Duration.ofSeconds(20);
    private static final String SECRET = "0123456789abcdef0123456789abcdef";

    @TempDir private Path folder;

    private Map<String, String> settings(String secret) throws IOException {
        var settings = new HashMap<String, String>();
        settings.put("shared-memory", "false");
        settings.put("handshake-timeout-ms", "3000");
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

    private static TransferOutcome copy(
            boolean write, JavaTransferEngine near, JavaTransferEngine far, long remote) {
        var memory = near.allocate(4096);
        Bytes.fill(memory.memory(), 3);
        var ranges = Ranges.of(memory.address(), remote, 4096);
        var by = Deadline.in(LIMIT);
        var name = far.info().segmentName();
        return near.transfer(
                write
                        ? TransferRequest.write(name, ranges, by)
                        : TransferRequest.read(name, ranges, by));
    }

    @Test
    void enginesOfOneSecretReadWriteAndNotify() throws Exception {
        try (var near = engine(SECRET);
                var far = engine(SECRET)) {
            var memory = far.allocate(4096);
            assertThat(copy(true, near, far, memory.address()))
                    .isInstanceOf(TransferOutcome.Completed.class);
            assertThat(Bytes.mismatch(memory.memory(), 0, 4096, 3)).isEqualTo(-1);
            assertThat(copy(false, near, far, memory.address()))
                    .isInstanceOf(TransferOutcome.Completed.class);
            near.send(far.info().segmentName(), new Notification("n", "m"), Deadline.in(LIMIT));
            assertThat(far.takeNotifications(2)).containsExactly(new Notification("n", "m"));
        }
    }

    @Test
    void whoDoesNotKnowTheSecretReadsAndWritesNothing() throws Exception {
        try (var far = engine(SECRET);
                var none = engine("");
                var other = engine(SECRET + "x")) {
            var memory = far.allocate(4096);
            var before = memory.memory().toArray(java.lang.foreign.ValueLayout.JAVA_BYTE);
            for (var stranger : new JavaTransferEngine[] {none, other}) {
                for (boolean write : new boolean[] {true, false}) {
                    assertThat(copy(write, stranger, far, memory.address()))
                            .isInstanceOf(TransferOutcome.Failed.class);
                    var theirs = stranger.allocate(4096);
                    assertThat(copy(write, far, stranger, theirs.address()))
                            .as("nor does it give them anything")
                            .isInstanceOf(TransferOutcome.Failed.class);
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
                    peer.send(RawSocket.header(64, memory.address(), opcode));
                    peer.send(RawSocket.header(64, memory.address(), opcode));
                    assertThat(peer.drain()).isEmpty();
                }
            }
            try (var peer = new RawSocket(data)) {
                // The right form, and no secret: the server's own words are of no use.
                peer.send("KVFERRY1".getBytes(java.nio.charset.StandardCharsets.US_ASCII));
                peer.send(new byte[32]);
                byte[] answer = peer.receive(64);
                peer.send(java.util.Arrays.copyOfRange(answer, 32, 64));
                peer.send(RawSocket.header(64, memory.address(), DataFrames.READ));
                assertThat(peer.drain()).isEmpty();
            }
        }
    }
}
