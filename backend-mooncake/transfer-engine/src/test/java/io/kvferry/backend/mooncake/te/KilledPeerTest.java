// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.peers.EngineProcess;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.crossmemory.CrossMemory;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;

/// kill -9 of the other process at random moments of a transfer.
class KilledPeerTest {
    private static final int LONG = 50;
    private static final long BYTES = 256 << 20;
    private static final Duration LIMIT = Duration.ofSeconds(60);

    @ParameterizedTest
    @ValueSource(strings = {"tcp", "shm", "cma"})
    void aKilledPeerIsNoticedAtOnceAndTheNextOneServed(String way) throws Exception {
        killRepeatedly(2, way);
    }

    @ParameterizedTest
    @ValueSource(strings = {"tcp", "shm", "cma"})
    @Tag("soak")
    @Timeout(value = 20, unit = TimeUnit.MINUTES)
    void manyKilledPeersAreNoticedAtOnce(String way) throws Exception {
        killRepeatedly(LONG, way);
    }

    private static void killRepeatedly(int rounds, String way) throws Exception {
        long seed = System.nanoTime();
        var random = new Random(seed);
        // A folder of our own, because killed processes leave their files behind.
        Path memory = Path.of("/dev/shm");
        Path folder =
                Files.isDirectory(memory)
                        ? Files.createTempDirectory(memory, "kvferry-kill")
                        : Files.createTempDirectory("kvferry-kill");
        try (var here =
                JavaTransferEngine.start(
                        EngineConfig.from(
                                java.util.Map.of(
                                        "shared-memory-dir",
                                        folder.toString(),
                                        "handshake-timeout-ms", // of a child on a busy machine
                                        "60000")))) {
            RegisteredMemory near = here.allocate(BYTES);
            int failed = 0;
            for (int round = 0; round < rounds; round++) {
                failed +=
                        killOne(
                                here,
                                near,
                                folder,
                                way,
                                random.nextInt(60),
                                "seed " + seed + " round " + round);
                deleteKilled(folder, here.info().incarnation());
            }
            System.out.println(
                    "killed " + rounds + " peers over " + way + ", " + failed + " WRITEs failed");
            // Copies into memory of a peer that was killed may all succeed, and a short run may
            // kill at moments at which everything is written.
            if (way.equals("tcp") && rounds == LONG) {
                assertThat(failed).as("WRITEs that the kills met").isPositive();
            }
        }
        deleteKilled(folder, "none");
        Files.delete(folder);
    }

    private static void deleteKilled(Path folder, String alive) throws IOException {
        try (Stream<Path> all = Files.list(folder)) {
            for (Path file : all.filter(path -> !path.toString().contains(alive)).toList()) {
                Files.delete(file);
            }
        }
    }

    /// How many of its WRITEs failed.
    private static int killOne(
            JavaTransferEngine here,
            RegisteredMemory near,
            Path folder,
            String way,
            int millis,
            String as)
            throws Exception {
        try (var peer =
                new EngineProcess(
                        "shared-memory=" + !way.equals("tcp"),
                        "shared-memory-dir=" + folder,
                        "registered=" + way.equals("cma"))) {
            if (way.equals("cma") && !CrossMemorySupport.permitted(peer.pid(), peer.address)) {
                System.out.println("NOT TRIED with cma: " + CrossMemory.availability(""));
                return 0;
            }
            var whole = Ranges.of(near.address(), peer.address, BYTES);
            EngineOutcome first =
                    here.transfer(EngineRequest.write(peer.segmentName, whole, Deadline.in(LIMIT)));
            assertThat(first).as(as).isEqualTo(new Completed(BYTES, Guarantee.APPLIED, way));
            var running = new EngineTransfer[4];
            for (int i = 0; i < running.length; i++) {
                running[i] =
                        here.submit(
                                EngineRequest.write(peer.segmentName, whole, Deadline.in(LIMIT)));
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(millis));
            peer.kill();
            int failures = 0;
            for (EngineTransfer transfer : running) {
                EngineOutcome outcome =
                        transfer.outcome().toCompletableFuture().get(90, TimeUnit.SECONDS);
                if (outcome instanceof Failed failed) {
                    failures++;
                    assertThat(failed.failure().code())
                            .as(as + failed)
                            .isEqualTo(ErrorCode.PEER_LOST);
                }
            }
            // Copies into its shared memory may succeed for a moment, until the loss is noticed.
            Deadline limit = Deadline.in(LIMIT);
            EngineOutcome last;
            do {
                last =
                        here.transfer(
                                EngineRequest.write(
                                        peer.segmentName,
                                        Ranges.of(near.address(), peer.address, 8),
                                        Deadline.in(LIMIT)));
            } while (last instanceof Completed && !limit.passed());
            assertThat(last)
                    .as(as)
                    .isInstanceOfSatisfying(
                            Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.PEER_LOST));
            return failures;
        }
    }

    @Test
    void filesOfKilledEnginesAreSweptAway() throws Exception {
        Path folder = Files.createTempDirectory("kvferry-sweep");
        try {
            var peer = new EngineProcess("shared-memory-dir=" + folder);
            assertThat(files(folder)).isPositive();
            peer.kill();
            long left = files(folder);
            assertThat(left).isPositive();
            try (Stream<Path> all = Files.list(folder)) {
                for (Path file : all.toList()) {
                    Files.setLastModifiedTime(
                            file,
                            java.nio.file.attribute.FileTime.from(
                                    java.time.Instant.now().minusSeconds(60)));
                }
            }
            JavaTransferEngine.start(
                            EngineConfig.from(
                                    java.util.Map.of("shared-memory-dir", folder.toString())))
                    .close();
            assertThat(files(folder)).isZero();
        } finally {
            try (Stream<Path> all = Files.list(folder)) {
                for (Path file : all.toList()) {
                    Files.delete(file);
                }
            }
            Files.delete(folder);
        }
    }

    private static long files(Path folder) throws IOException {
        try (Stream<Path> all = Files.list(folder)) {
            return all.count();
        }
    }
}
