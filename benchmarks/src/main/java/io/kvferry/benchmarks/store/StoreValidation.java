// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.Table;

import org.jspecify.annotations.Nullable;

import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;

/// `store-validation`: the validation run of vLLM's branch with owners, on the synthetic model:
/// conversations of several turns over an owner process whose memory is far smaller than what they
/// say, so that most of it comes back from disk. Fails unless every conversation ended, no key of a
/// load failed, and most keys came from disk; every byte that was loaded is verified.
@SuppressWarnings("try") // an interrupt ends the benchmark
@Command(
        name = "store-validation",
        description =
                "Conversations over an owner whose memory is far smaller than they are, every loaded"
                        + " byte verified; with loads split by bytes, and by count as vLLM once did.")
public final class StoreValidation extends Benchmark {
    private static final Pattern COUNT =
            Pattern.compile("(batch_keys|memory_keys|disk_keys|unknown_keys|failed_keys)=(\\d+)");
    private static final Pattern BYTES = Pattern.compile("'(memory|disk)': (\\d+)");
    private static final Pattern FIGURE = Pattern.compile("(\\w+)=(\\S+)");
    private static final String TIER_LINE = "Mooncake load tier summary: ";
    private static final int SHOWN = 3;

    /// Of the owner. Leases of all that is looked up keep its memory; what has a copy on disk needs
    /// none.
    private static final String LEASE = "1s";

    @Option(names = "--rounds", description = "Of both ways to split (3).")
    private @Nullable Integer givenRounds;

    @Option(names = "--conversations", description = "How many (100).")
    private @Nullable Integer conversations;

    @Option(names = "--turns", description = "Of a conversation.")
    private int turns = 3;

    @Option(names = "--concurrent", description = "Conversations at a time (32).")
    private @Nullable Integer concurrent;

    @Option(names = "--tokens", description = "Of the first prompt (16384).")
    private @Nullable Integer tokens;

    @Option(names = "--layers", description = "Of 256 bytes per token.")
    private int layers = 4;

    @Option(names = "--token-time", description = "Of the model, for each token (10us).")
    private @Nullable String tokenTime;

    @Option(names = "--pool", paramLabel = "BYTES", description = "Of the owner (256MiB).")
    private @Nullable String givenPool;

    @Option(names = "--staging", paramLabel = "BYTES", description = "Of the owner.")
    private String staging = "1280mb";

    @Option(names = "--dir", description = "Where the disk tier makes its folder.")
    private Path dir = Path.of(".");

    @Override
    protected void run() throws IOException, InterruptedException {
        int rounds = or(givenRounds, quick ? 1 : 3);
        var shape =
                List.of(
                        String.valueOf(or(conversations, quick ? 12 : 100)),
                        String.valueOf(turns),
                        String.valueOf(or(concurrent, quick ? 4 : 32)),
                        String.valueOf(or(tokens, quick ? 2048 : 16384)),
                        String.valueOf(layers),
                        or(tokenTime, quick ? "0" : "10us"));
        String pool = or(givenPool, quick ? "8MiB" : "256MiB");
        var table =
                new Table(
                        "split",
                        "complete",
                        "seconds",
                        "TTFT ms",
                        "TTFT ms, later turns",
                        "p99",
                        "E2E ms",
                        "loaded of later prompts",
                        "sub-batches",
                        "keys from memory",
                        "from disk",
                        "share from disk",
                        "failed",
                        "GB from disk");
        var troubles = new ArrayList<String>();
        for (int round = 0; round < rounds; round++) {
            for (boolean byCount : new boolean[] {false, true}) {
                var run = round(dir, shape, pool, staging, byCount);
                run.addTo(table, byCount);
                troubles.addAll(run.troubles(shape.getFirst()));
            }
        }
        table.print();
        if (!troubles.isEmpty()) {
            throw new IllegalStateException(String.join("; ", troubles));
        }
    }

    private static <T> T or(@Nullable T given, T otherwise) {
        return given != null ? given : otherwise;
    }

    /// @param tiers sums over the tier lines
    record Run(Map<String, String> figures, Map<String, Long> tiers, int lines, int exitCode) {
        /// Why it validates nothing.
        List<String> troubles(String conversations) {
            var troubles = new ArrayList<String>();
            if (exitCode != 0) {
                troubles.add("the engine ended with code " + exitCode);
            }
            String complete = figures.getOrDefault("complete", "none");
            if (!complete.equals(conversations + "/" + conversations)) {
                troubles.add("complete conversations: " + complete);
            }
            if (sum("failed_keys") > 0) {
                troubles.add(sum("failed_keys") + " keys of loads failed");
            }
            if (shareFromDisk() <= 0.5) {
                troubles.add(
                        String.format(
                                Locale.ROOT,
                                "only %.0f %% of %d loaded keys came from disk; a smaller --pool"
                                        + " or more --conversations make it more",
                                100 * shareFromDisk(),
                                loadedKeys()));
            }
            return troubles;
        }

        private long sum(String name) {
            return tiers.getOrDefault(name, 0L);
        }

        private long loadedKeys() {
            return sum("memory_keys") + sum("disk_keys") + sum("unknown_keys");
        }

        private double shareFromDisk() {
            return sum("disk_keys") / (double) Math.max(1, loadedKeys());
        }

        private void addTo(Table table, boolean byCount) {
            table.row(
                    byCount ? "by count, too" : "by bytes",
                    figures.getOrDefault("complete", "none"),
                    figures.getOrDefault("seconds", "-"),
                    figures.getOrDefault("ttft_ms", "-"),
                    figures.getOrDefault("later_ttft_ms", "-"),
                    figures.getOrDefault("later_ttft_p99_ms", "-"),
                    figures.getOrDefault("e2e_ms", "-"),
                    figures.getOrDefault("later_loaded", "-"),
                    lines,
                    sum("memory_keys"),
                    sum("disk_keys"),
                    shareFromDisk(),
                    sum("failed_keys"),
                    sum("disk") / 1e9);
        }
    }

    /// @param dir where its disk tier is while it runs
    /// @param shape conversations, turns, concurrent, tokens of the first prompt, layers, time of a
    ///   computed token
    /// @param pool bytes of the owner
    /// @param staging bytes through which the owner reads its disk
    /// @param byCount whether loads are split by count too
    static Run round(Path dir, List<String> shape, String pool, String staging, boolean byCount)
            throws IOException, InterruptedException {
        Path folder = Files.createTempDirectory(dir, "store-validation");
        Path log = folder.resolve("engine.log");
        var options =
                List.of("--kv-lease-ttl", LEASE, "--ssd-path", folder.resolve("tier").toString());
        try (var owner = new OwnerJvm(pool, options, folder.resolve("owner.log"))) {
            String config =
                    "{\"kv_connector\":\"MooncakeStoreConnector\",\"kv_role\":\"kv_both\","
                            + "\"kv_load_failure_policy\":\"recompute\","
                            + "\"kv_connector_extra_config\":{\"store\":\""
                            + owner.address()
                            + "\",\"load_recv_threads\":2}}";
            var arguments = new ArrayList<>(List.of(config));
            arguments.addAll(shape);
            var builder =
                    new ProcessBuilder(
                            OwnerJvm.command(
                                    ValidationChild.class.getName(),
                                    List.of("-Dkvferry.benchmark.count_split=" + byCount),
                                    arguments));
            builder.environment().put("KVFERRY_MOONCAKE_STORE_TIER_LOG", "1");
            builder.environment().put("MOONCAKE_ENABLE_OFFLOAD", "1");
            builder.environment().put("MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES", staging);
            return run(builder.redirectError(log.toFile()).start(), log);
        } finally {
            Folders.delete(folder);
        }
    }

    private static Run run(Process engine, Path log) throws IOException, InterruptedException {
        var figures = new TreeMap<String, String>();
        try (BufferedReader lines = engine.inputReader(StandardCharsets.UTF_8)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.startsWith("@ ")) {
                    var matcher = FIGURE.matcher(line);
                    while (matcher.find()) {
                        figures.put(matcher.group(1), matcher.group(2));
                    }
                }
            }
        } finally {
            OwnerJvm.stop(engine);
        }
        var sums = new TreeMap<String, Long>();
        int count = 0;
        for (String line : Files.readAllLines(log)) {
            int at = line.indexOf(TIER_LINE);
            if (at < 0) {
                System.out.println("# " + line);
                continue;
            }
            if (count < SHOWN) {
                System.out.println("# " + line.substring(at));
            }
            count++;
            for (Pattern pattern : List.of(COUNT, BYTES)) {
                var matcher = pattern.matcher(line);
                while (matcher.find()) {
                    sums.merge(matcher.group(1), Long.parseLong(matcher.group(2)), Long::sum);
                }
            }
        }
        return new Run(figures, sums, count, engine.exitValue());
    }
}
