// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.EngineSettings;
import io.kvferry.serving.cli.MakeModelCommand;
import io.kvferry.serving.cli.Progress;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

/// Processes killed and the disk folder removed in the middle of real work: no hang, no wrong
/// token, a clear outcome for each request, no block lost, and the next requests are served.
@Timeout(300) // four times two runs of real processes; seconds on a quiet machine
class FailureTest {
    private static final int BLOCKS = 512;
    private static final int ANSWER_TOKENS = 12;

    private static final Progress SILENT =
            new Progress() {
                @Override
                public void phase(String what) {}

                @Override
                public void advance(int done, int total) {}
            };

    @TempDir static Path shared;

    @TempDir Path folder;

    private static List<Turn> turns = List.of();

    @BeforeAll
    static void computeTheReference() {
        var model = shared.resolve("model");
        MakeModelCommand.makeDefault(model);
        var settings = EngineSettings.of("llama", model).withBlocks(16, BLOCKS);
        var some =
                Conversations.bundled().subList(0, 4).stream()
                        .map(turns -> turns.subList(0, 2))
                        .toList();
        turns = ReferenceRun.of(settings, some, ANSWER_TOKENS, SILENT);
    }

    private Cluster cluster(int decoders) throws InterruptedException, IOException {
        return cluster(decoders, Optional.empty());
    }

    /// @param first the connector before DiskConnector
    private Cluster cluster(int decoders, Optional<String> first)
            throws InterruptedException, IOException {
        var disk = Files.createDirectories(folder.resolve("disk"));
        return Cluster.start(
                new ClusterPlan(
                        "llama",
                        shared.resolve("model"),
                        first,
                        Optional.empty(),
                        false,
                        Optional.empty(),
                        decoders,
                        disk,
                        folder,
                        BLOCKS));
    }

    /// Runs all turns and does `damage` when some of them are through.
    private static List<Sample> runWithDamage(Cluster cluster, Damage damage) throws Exception {
        var some = new CountDownLatch(3);
        var saboteur =
                new FutureTask<Boolean>(() -> {
                    boolean inTheMiddle = some.await(120, TimeUnit.SECONDS);
                    damage.run();
                    return inTheMiddle;
                });
        Thread.ofPlatform().start(saboteur);
        var samples = LoadRun.run(cluster.router(), turns, 2, _ -> some.countDown());
        assertThat(saboteur.get(120, TimeUnit.SECONDS))
                .as("the damage was done while requests ran")
                .isTrue();
        return samples;
    }

    private interface Damage {
        void run() throws Exception;
    }

    private static void assertNoWrongToken(List<Sample> samples) {
        assertThat(samples)
                .hasSameSizeAs(turns)
                .allSatisfy(sample -> {
                    assertThat(sample.identical())
                            .as("tokens of %s", sample.turn())
                            .isEqualTo(sample.tokens().length);
                    assertThat(sample.matches() || !sample.error().isEmpty())
                            .as("a clear outcome")
                            .isTrue();
                });
    }

    private static void assertAllServed(List<Sample> samples) {
        assertThat(samples)
                .hasSameSizeAs(turns)
                .allSatisfy(sample -> {
                    assertThat(sample.error()).isEmpty();
                    assertThat(sample.matches()).isTrue();
                });
    }

    private static void assertPoolIsFull(Cluster cluster, String member) throws Exception {
        var deadline = Deadline.in(Duration.ofSeconds(20));
        double free = 0;
        while (!deadline.passed()) {
            free = cluster.metric(member, "kvferry_blocks", "kind=\"free\"");
            if (free == cluster.metric(member, "kvferry_blocks", "kind=\"total\"")
                    && cluster.metric(member, "kvferry_blocks", "kind=\"leased\"") == 0) {
                return;
            }
            TimeUnit.MILLISECONDS.sleep(50); // polling a child process; the deadline decides
        }
        assertThat(free)
                .as("free blocks of " + member)
                .isEqualTo(cluster.metric(member, "kvferry_blocks", "kind=\"total\""));
    }

    @Test
    void servesOnWhenADecodeProcessIsKilled() throws Exception {
        try (var cluster = cluster(2)) {
            var samples = runWithDamage(cluster, () -> cluster.member("decode-0").process().kill());
            assertNoWrongToken(samples);
            assertAllServed(LoadRun.run(cluster.router(), turns, 2, _ -> {}));
            assertPoolIsFull(cluster, "prefill");
            assertPoolIsFull(cluster, "decode-1");
        }
    }

    @Test
    void servesOnWhenThePrefillProcessIsKilled() throws Exception {
        try (var cluster = cluster(1)) {
            assertAllServed(
                    runWithDamage(cluster, () -> cluster.member("prefill").process().kill()));
            assertAllServed(LoadRun.run(cluster.router(), turns, 2, _ -> {}));
            assertPoolIsFull(cluster, "decode-0");
        }
    }

    @Tag("soak")
    @Test
    void servesOnWhenThePrefillProcessOfP2pNcclIsKilled() throws Exception {
        try (var cluster = cluster(1, Optional.of("P2pNcclConnector"))) {
            assertAllServed(LoadRun.run(cluster.router(), turns, 2, _ -> {}));
            assertThat(cluster.metric("decode-0", "kvferry_kv_p2p_bytes_received_total", "p2pnccl"))
                    .as("what came from process to process")
                    .isPositive();
            assertAllServed(
                    runWithDamage(cluster, () -> cluster.member("prefill").process().kill()));
            assertPoolIsFull(cluster, "decode-0");
        }
    }

    @Test
    void servesOnWhenTheDiskFolderIsRemoved() throws Exception {
        try (var cluster = cluster(1)) {
            var disk = folder.resolve("disk");
            // At once: the engines go on writing into a folder that is emptied file by file, and
            // the removal would fail or not, as it happens.
            var gone = folder.resolve("gone");
            assertAllServed(runWithDamage(cluster, () -> Files.move(disk, gone)));
            assertThat(gone).isNotEmptyDirectory();
            assertAllServed(LoadRun.run(cluster.router(), turns, 2, _ -> {}));
            assertPoolIsFull(cluster, "prefill");
            assertPoolIsFull(cluster, "decode-0");
        }
    }
}
