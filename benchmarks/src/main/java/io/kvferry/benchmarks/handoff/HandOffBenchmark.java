// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Table;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.kv.KvConnectorProvider;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;

/// P to D as a whole: from the end of the prefill to the decoder's first token, for prompts of 128
/// to 32,768 tokens of a Llama-3-8B-shaped cache.
///
/// The synthetic runner writes each token's KV and lets a token cost [EngineChild#TOKEN_TIME] at
/// least. A first pass with a decoder that verifies every loaded byte shows that what is measured
/// afterwards is the hand-off of a right cache.
public final class HandOffBenchmark implements Benchmark {
    private static final int[] TOKENS = {128, 512, 2048, 8192, 32_768};
    private static final int QUICK = 2048;

    @Override
    public String name() {
        return "handoff";
    }

    @Override
    public String description() {
        return "prefill finished at P to KV used at D, two JVMs, Llama-3-8B-shaped cache, by connector;"
                + " --dir DIR: folder for DiskConnector";
    }

    @Override
    public void run(List<String> args) throws Exception {
        boolean quick = args.contains("--quick");
        var sizes = Arrays.stream(TOKENS).filter(tokens -> !quick || tokens <= QUICK).toArray();
        int at = args.indexOf("--dir");
        var parent = Path.of(at < 0 ? System.getProperty("java.io.tmpdir") : args.get(at + 1));
        var table =
                new Table(
                        "connector",
                        "tokens",
                        "MB",
                        "hand-off ms",
                        "GB/s",
                        "TTFT ms",
                        "hand-off, % of TTFT");
        measure(Route.Mooncake.onFreePort(), sizes, table);
        var folder = Files.createTempDirectory(parent, "kvferry-handoff");
        try {
            measure(new Route.Disk(folder), sizes, table);
        } finally {
            delete(folder);
        }
        table.print();
        System.out.println(
                "Medians. Hand-off: prefill finished at P until the first token at D. TTFT: request submitted until"
                        + " that token;\nprefill takes "
                        + EngineChild.TOKEN_TIME
                        + " per token or, where that is longer, the writing of the KV.");
        try (var plugins = PluginCatalog.ofClassPath()) {
            if (plugins.of(KvConnectorProvider.class).find("P2pNcclConnector").isEmpty()) {
                System.out.println("P2pNcclConnector: left out, it is not part of this build yet.");
            }
        }
    }

    private static void measure(Route route, int[] sizes, Table table) throws IOException {
        int longest = sizes[sizes.length - 1];
        try (var prefill = new EngineProcess(route.prefillConfig(), longest, "none")) {
            prefill.awaitReady();
            try (var decode = new EngineProcess(route.decodeConfig(), longest, "loaded")) {
                decode.awaitReady();
                for (int tokens : sizes) {
                    checked(route.send(prefill, decode, "verified-" + tokens, tokens), tokens);
                }
            }
            try (var decode = new EngineProcess(route.decodeConfig(), longest, "none")) {
                decode.awaitReady();
                for (int tokens : sizes) {
                    row(route, prefill, decode, tokens, table);
                }
            }
        }
    }

    private static void row(
            Route route, EngineProcess prefill, EngineProcess decode, int tokens, Table table) {
        int rounds = tokens <= QUICK ? 9 : 3;
        var pairs = new Route.Pair[rounds];
        for (int round = -2; round < rounds; round++) {
            if (round < 0 && tokens > QUICK) {
                continue; // warm from the shorter ones
            }
            var pair = route.send(prefill, decode, tokens + "-" + round, tokens);
            checked(pair, tokens);
            if (round >= 0) {
                pairs[round] = pair;
            }
        }
        Arrays.sort(pairs, Comparator.comparingLong(Route.Pair::handOffNanos));
        var median = pairs[rounds / 2];
        double bytes = tokens * EngineChild.BYTES_PER_TOKEN;
        table.row(
                route.connector(),
                tokens,
                Math.round(bytes / 1e6),
                median.handOffNanos() / 1e6,
                bytes / median.handOffNanos(),
                median.ttftNanos() / 1e6,
                100.0 * median.handOffNanos() / median.ttftNanos());
    }

    /// A decoder computes the last token of a prompt again to sample from it.
    private static void checked(Route.Pair pair, int tokens) {
        if (pair.decode().loaded() < tokens - EngineChild.BLOCK_TOKENS) {
            throw new IllegalStateException(
                    "only "
                            + pair.decode().loaded()
                            + " of "
                            + tokens
                            + " tokens were handed over");
        }
    }

    private static void delete(Path folder) throws IOException {
        try (var files = Files.walk(folder)) {
            for (var file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(file);
            }
        }
    }
}
