// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.internal.WireJson;
import io.kvferry.backend.mooncake.te.internal.handshake.Handshake;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeClient;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument;
import io.kvferry.backend.mooncake.te.internal.tcp.DataFrames;
import io.kvferry.backend.mooncake.te.peers.EngineProcess;
import io.kvferry.backend.mooncake.te.peers.RawSocket;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.net.Cancellation;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// Engines, each in a process of its own, that run out of something: they serve on, or serve again
/// when it is back.
@Timeout(300)
class ShortageTest {
    private static final Duration LIMIT = Duration.ofSeconds(30);

    /// A peer that reads some bytes of the child's memory over its data port.
    private static EngineOutcome read(EngineProcess child) {
        try (var near =
                JavaTransferEngine.start(
                        EngineConfig.from(java.util.Map.of("shared-memory", "false")))) {
            var memory = near.allocate(4096);
            return near.transfer(
                    EngineRequest.read(
                            child.segmentName,
                            Ranges.of(memory.address(), child.address, 4096),
                            Deadline.in(LIMIT)));
        }
    }

    private static int handshakePort(EngineProcess child) {
        return HostPort.parse(child.segmentName).port();
    }

    private static int dataPort(EngineProcess child) {
        var client = new HandshakeClient(LIMIT, LIMIT, 1 << 20);
        var question = new Handshake.Message(Handshake.METADATA, WireJson.bytes(WireJson.object()));
        var answer =
                client.ask(
                        HostPort.parse(child.segmentName),
                        question,
                        Deadline.in(LIMIT),
                        new Cancellation());
        return SegmentDocument.decode(answer.text()).dataPort();
    }

    @Test
    void bothPortsServeAgainAfterDescriptorsRanOut() throws Exception {
        assumeTrue(runs("prlimit", "--version"), "needs prlimit (util-linux)");
        try (var child =
                new EngineProcess(
                        List.of("prlimit", "--nofile=120:120"),
                        "bytes=65536",
                        "shared-memory=false",
                        "handshake-timeout-ms=60000")) {
            // Classes cannot be loaded without descriptors either.
            assertThat(probe(handshakePort(child))).contains("success");
            assertThat(read(child)).isInstanceOf(EngineOutcome.Completed.class);
            int data = dataPort(child);
            var open = new ArrayList<RawSocket>();
            try {
                // More than it has descriptors for; the system queues what is not accepted.
                for (int i = 0; i < 150; i++) {
                    open.add(new RawSocket(handshakePort(child)));
                    open.add(new RawSocket(data));
                }
                awaitOutOfDescriptors(child);
            } finally {
                for (var socket : open) {
                    socket.close();
                }
            }
            assertThat(probe(handshakePort(child))).contains("success");
            assertThat(read(child)).isInstanceOf(EngineOutcome.Completed.class);
        }
    }

    /// Until it has as many as it may.
    private static void awaitOutOfDescriptors(EngineProcess child) throws Exception {
        var limit = Deadline.in(LIMIT);
        var descriptors = Path.of("/proc/" + child.pid() + "/fd").toFile();
        int count = 0;
        while (count < 119 && !limit.passed()) {
            count = descriptors.list().length;
            TimeUnit.MILLISECONDS.sleep(20);
        }
        assertThat(count).as("descriptors of the child").isGreaterThanOrEqualTo(119);
    }

    private static String probe(int port) throws IOException {
        try (var peer = new RawSocket(port)) {
            return new String(peer.sendHex("0400000000000000 03 7b7d0a").drain(), UTF_8);
        }
    }

    @Test
    void connectionsNeedNothingOfTheDirectMemoryThatTheCacheFills() throws Exception {
        try (var child =
                new EngineProcess(
                        "bytes=6291456",
                        "shared-memory=false",
                        "-XX:MaxDirectMemorySize=7m",
                        "max-connections=256")) {
            int data = dataPort(child);
            var open = new ArrayList<RawSocket>();
            try {
                for (int i = 0; i < 100; i++) { // 12.5 MiB of staging buffers
                    var peer = new RawSocket(data);
                    open.add(peer);
                    peer.send(RawSocket.header(64, child.address, DataFrames.READ | DataFrames.V2));
                    assertThat(peer.receive(DataFrames.STATUS + 64))
                            .as("connection %d", i)
                            .hasSize(DataFrames.STATUS + 64);
                }
            } finally {
                for (var socket : open) {
                    socket.close();
                }
            }
            assertThat(read(child)).isInstanceOf(EngineOutcome.Completed.class);
        }
    }

    @Test
    void aFolderForSharedMemoryWithoutRoomLeavesTheSocket(@TempDir Path folder) throws Exception {
        var mount = "mount -t tmpfs -o size=64k tmpfs " + folder + " && exec \"$@\"";
        var under = List.of("unshare", "-m", "sh", "-c", mount, "sh");
        var probe = new ArrayList<>(under);
        probe.add("true");
        assumeTrue(runs(probe.toArray(String[]::new)), "needs the right to mount a tmpfs");
        try (var child = new EngineProcess(under, "bytes=1048576", "shared-memory-dir=" + folder);
                var near = JavaTransferEngine.start(EngineConfig.defaults())) {
            long grant = Long.parseLong(child.ask("grant"));
            var memory = near.allocate(1 << 20);
            Bytes.fill(memory.memory(), 5);
            var outcome =
                    near.transfer(
                            EngineRequest.write(
                                            child.segmentName,
                                            Ranges.of(memory.address(), child.address, 1 << 20),
                                            Deadline.in(LIMIT))
                                    .withCapability(grant));
            assertThat(outcome)
                    .isInstanceOfSatisfying(
                            EngineOutcome.Completed.class,
                            done -> assertThat(done.path()).isEqualTo("tcp"));
            assertThat(child.ask("revoke")).isEqualTo("revoked");
            assertThat(child.ask("mismatch 5")).isEqualTo("-1");
            assertThat(memory.memory().get(ValueLayout.JAVA_BYTE, 0)).isNotZero();
        }
    }

    private static boolean runs(String... command) throws InterruptedException {
        try {
            var process =
                    new ProcessBuilder(command)
                            .redirectErrorStream(true)
                            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                            .start();
            return process.waitFor(10, TimeUnit.SECONDS) && process.exitValue() == 0;
        } catch (IOException e) {
            return false;
        }
    }
}
