// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.peers.RealPeer;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.zip.CRC32;

/// Both roles against a real Mooncake process, over both versions of the data protocol.
@Tag("interop")
class RealMooncakeTest {
    private static final int BYTES = 8 << 20;

    private static JavaTransferEngine engine(int version) {
        return JavaTransferEngine.start(
                EngineConfig.from(Map.of("protocol-version", String.valueOf(version))));
    }

    private static long crc(RegisteredMemory memory, long bytes) {
        var crc = new CRC32();
        crc.update(memory.memory().asSlice(0, bytes).asByteBuffer());
        return crc.getValue();
    }

    private static void fill(RegisteredMemory memory, int seed) {
        for (long i = 0; i < memory.bytes(); i++) {
            memory.memory().set(ValueLayout.JAVA_BYTE, i, (byte) (i * 7 + seed));
        }
    }

    private static EngineOutcome transfer(
            JavaTransferEngine engine,
            Operation operation,
            RealPeer peer,
            long local,
            long remote,
            int length,
            int n) {
        var ranges = new Ranges(n);
        for (int i = 0; i < n; i++) {
            ranges.add(local + (long) i * length, remote + (long) i * length, length);
        }
        return engine.transfer(
                new EngineRequest(
                        operation,
                        peer.segmentName,
                        ranges,
                        Deadline.in(Duration.ofSeconds(30)),
                        "",
                        0,
                        0,
                        Optional.empty()));
    }

    /// Between the beginnings of both memories.
    private static EngineOutcome transfer(
            JavaTransferEngine engine,
            Operation operation,
            RealPeer peer,
            RegisteredMemory memory,
            int length,
            int n) {
        return transfer(engine, operation, peer, memory.address(), peer.address, length, n);
    }

    /// Each cancelled at a random moment; what the peer has then is what it keeps.
    @ParameterizedTest
    @CsvSource({"2, 2", "1, 1"})
    void cancelledWritesChangeNothingOnceTheyAreQuiet(int ours, int theirs) throws Exception {
        Map<String, String> environment = theirs == 1 ? Map.of("MC_TCP_PROTO", "1") : Map.of();
        try (var engine = engine(ours);
                var peer = RealPeer.p2p(BYTES, environment)) {
            var memory = engine.allocate(BYTES);
            var random = new Random(5);
            int cut = 0;
            for (int round = 1; round <= 40; round++) {
                memory.memory().fill((byte) round);
                var transfer =
                        engine.submit(
                                EngineRequest.write(
                                        peer.segmentName,
                                        Ranges.of(memory.address(), peer.address, BYTES),
                                        Deadline.in(Duration.ofSeconds(30))));
                LockSupport.parkNanos(random.nextLong(10_000_000));
                transfer.cancel();
                long began = System.nanoTime();
                transfer.quiesced().toCompletableFuture().get(30, TimeUnit.SECONDS);
                assertThat(Duration.ofNanos(System.nanoTime() - began))
                        .as("the peer closes by itself")
                        .isLessThan(Duration.ofSeconds(5));
                cut += transfer.outcome().toCompletableFuture().join() instanceof Completed ? 0 : 1;
                var after = peer.ask("crc 0 %d", BYTES);
                Thread.sleep(20);
                assertThat(peer.ask("crc 0 %d", BYTES)).as("round %d", round).isEqualTo(after);
            }
            assertThat(cut).as("cancelled in time").isPositive();
        }
    }

    @ParameterizedTest
    @CsvSource({"2, 2", "1, 2", "2, 1", "1, 1"})
    void bothSidesWriteAndReadEachOther(int ours, int theirs) throws IOException {
        Map<String, String> environment = theirs == 1 ? Map.of("MC_TCP_PROTO", "1") : Map.of();
        try (var engine = engine(ours);
                var peer = RealPeer.p2p(BYTES, environment)) {
            RegisteredMemory memory = engine.allocate(BYTES);
            String own = engine.info().segmentName();
            for (int[] shape :
                    new int[][] {{1, 1}, {4096, 200}, {65_537, 100}, {1 << 20, 8}, {BYTES, 1}}) {
                int length = shape[0];
                int count = shape[1];
                long total = (long) length * count;
                fill(memory, length);
                assertThat(peer.ask("zero")).isEqualTo("ok");
                assertThat(transfer(engine, Operation.WRITE, peer, memory, length, count))
                        .isInstanceOf(Completed.class);
                assertThat(peer.ask("crc 0 %d", total))
                        .as("we write %d", length)
                        .isEqualTo("" + crc(memory, total));

                peer.ask("fill %d", length % 100);
                assertThat(transfer(engine, Operation.READ, peer, memory, length, count))
                        .isInstanceOf(Completed.class);
                assertThat(peer.ask("crc 0 %d", total))
                        .as("we read %d", length)
                        .isEqualTo("" + crc(memory, total));

                peer.ask("fill %d", length % 77 + 1);
                assertThat(peer.ask("write %s 0 %d %d %d", own, memory.address(), length, count))
                        .isEqualTo("0");
                awaitCrc(memory, total, peer.ask("crc 0 %d", total), Math.min(ours, theirs));

                fill(memory, length % 55 + 2);
                assertThat(peer.ask("read %s 0 %d %d %d", own, memory.address(), length, count))
                        .isEqualTo("0");
                assertThat(peer.ask("crc 0 %d", total))
                        .as("it reads %d", length)
                        .isEqualTo("" + crc(memory, total));
            }
        }
    }

    /// A version-1 writer does not wait for its bytes to be applied.
    private static void awaitCrc(
            RegisteredMemory memory, long total, String expected, int version) {
        Deadline limit = Deadline.in(Duration.ofSeconds(version == 1 ? 60 : 0));
        while (!expected.equals("" + crc(memory, total)) && !limit.passed()) {
            Thread.onSpinWait();
        }
        assertThat("" + crc(memory, total)).isEqualTo(expected);
    }

    @Test
    void bothSidesRefuseAddressesThatAreNotRegistered() throws IOException {
        try (var engine = engine(2);
                var peer = RealPeer.p2p(1 << 20, Map.of())) {
            RegisteredMemory memory = engine.allocate(1 << 20);
            for (long address :
                    new long[] {0x1000, peer.address - 1, peer.address + (1 << 20) - 10}) {
                for (Operation operation : Operation.values()) {
                    assertThat(transfer(engine, operation, peer, memory.address(), address, 100, 1))
                            .isInstanceOfSatisfying(
                                    Failed.class,
                                    failed ->
                                            assertThat(failed.failure().code())
                                                    .isEqualTo(ErrorCode.PEER_REFUSED));
                }
            }
            String own = engine.info().segmentName();
            assertThat(peer.ask("write %s 0 %d 100 1", own, memory.address() - 1)).isEqualTo("-1");
            assertThat(peer.ask("read %s 0 4096 100 1", own)).isEqualTo("-1");
            assertThat(peer.ask("write %s 0 %d 100 1", own, memory.address())).isEqualTo("0");
        }
    }

    @Test
    void notificationsArriveAfterTheDataInBothDirections() throws IOException {
        try (var engine = engine(2);
                var peer = RealPeer.p2p(1 << 20, Map.of())) {
            RegisteredMemory memory = engine.allocate(1 << 20);
            fill(memory, 3);
            var request =
                    Announced.by(
                            new Notification("jvm", "block-1"),
                            EngineRequest.write(
                                    peer.segmentName,
                                    Ranges.of(memory.address(), peer.address, 1 << 20),
                                    Deadline.in(Duration.ofSeconds(60))));
            assertThat(engine.transfer(request)).isInstanceOf(Completed.class);
            assertThat(peer.ask("notifies")).isEqualTo("jvm=block-1");
            assertThat(peer.ask("crc 0 %d", 1 << 20)).isEqualTo("" + crc(memory, 1 << 20));

            peer.ask("fill 9");
            assertThat(
                            peer.ask(
                                    "notify %s 0 %d %d python block-2",
                                    engine.info().segmentName(), memory.address(), 1 << 20))
                    .isEqualTo("0");
            assertThat(engine.awaitNotifications(5, Deadline.in(Duration.ofSeconds(60))))
                    .containsExactly(new Notification("python", "block-2"));
            assertThat(peer.ask("crc 0 %d", 1 << 20)).isEqualTo("" + crc(memory, 1 << 20));
        }
    }

    @Test
    void aKilledPeerIsNoticedAndItsSuccessorServed() throws IOException {
        try (var engine = engine(2)) {
            RegisteredMemory memory = engine.allocate(BYTES);
            for (int life = 0; life < 2; life++) {
                try (var peer = RealPeer.p2p(BYTES, Map.of())) {
                    assertThat(transfer(engine, Operation.WRITE, peer, memory, BYTES, 1))
                            .isInstanceOf(Completed.class);
                    peer.kill();
                    long began = System.nanoTime();
                    assertThat(transfer(engine, Operation.WRITE, peer, memory, BYTES, 1))
                            .isInstanceOfSatisfying(
                                    Failed.class,
                                    failed ->
                                            assertThat(failed.failure().code())
                                                    .isEqualTo(ErrorCode.PEER_LOST));
                    assertThat(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began))
                            .isLessThan(20_000);
                }
            }
        }
    }

    @Test
    void bothSidesMeetThroughOurMetadataServer() throws IOException {
        try (var server = MetadataServer.start("127.0.0.1", 0)) {
            meet(server.connection());
        }
    }

    @Test
    void bothSidesMeetThroughTheMetadataServerOfMooncakeMaster() throws Exception {
        Path python = Path.of(RealPeer.python());
        Path master = python.resolveSibling("mooncake_master");
        master = Files.isExecutable(master) ? master : python.resolveSibling("bin/mooncake_master");
        Assumptions.assumeTrue(
                Files.isExecutable(master), "no mooncake_master beside " + RealPeer.python());
        int port = freePort();
        Process process =
                new ProcessBuilder(
                                master.toString(),
                                "--rpc_address=127.0.0.1",
                                "--rpc_port=" + freePort(),
                                "--metrics_host=127.0.0.1",
                                "--metrics_port=" + freePort(),
                                "--enable_http_metadata_server=true",
                                "--http_metadata_server_host=127.0.0.1",
                                "--http_metadata_server_port=" + port)
                        .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                        .redirectError(ProcessBuilder.Redirect.DISCARD)
                        .start();
        try {
            Deadline limit = Deadline.in(Duration.ofSeconds(20));
            while (!listens(port) && !limit.passed()) {
                Thread.onSpinWait();
            }
            meet("http://127.0.0.1:" + port + "/metadata");
        } finally {
            process.destroyForcibly().onExit().join();
        }
    }

    private static boolean listens(int port) {
        try (var socket = new java.net.Socket("127.0.0.1", port)) {
            return socket.isConnected();
        } catch (IOException _) {
            return false;
        }
    }

    private static void meet(String metadata) throws IOException {
        for (int life = 0; life < 2; life++) {
            try (var engine =
                            JavaTransferEngine.start(
                                    EngineConfig.from(
                                            Map.of("metadata", metadata, "name", "jvm")));
                    var peer =
                            new RealPeer(
                                    metadata,
                                    "python-" + life,
                                    1 << 20,
                                    Map.of("MC_TCP_BIND_ADDRESS", "127.0.0.1"))) {
                RegisteredMemory memory = engine.allocate(1 << 20);
                fill(memory, life);
                assertThat(transfer(engine, Operation.WRITE, peer, memory, 1 << 20, 1))
                        .isInstanceOf(Completed.class);
                assertThat(peer.ask("crc 0 %d", 1 << 20)).isEqualTo("" + crc(memory, 1 << 20));
                peer.ask("fill 5");
                // A native peer keeps the first document it saw of a name, so each of ours meets a
                // fresh peer.
                assertThat(peer.ask("write jvm 0 %d %d 1", memory.address(), 1 << 20))
                        .isEqualTo("0");
                assertThat(peer.ask("crc 0 %d", 1 << 20)).isEqualTo("" + crc(memory, 1 << 20));
            }
        }
    }
}
