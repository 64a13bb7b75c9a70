// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.Table;
import io.kvferry.benchmarks.WarmUp;
import io.kvferry.benchmarks.disk.Fio;

import org.jspecify.annotations.Nullable;

import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.ToLongFunction;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/// Prefill to decode hand-off, end to end: from the end of the prefill to the decoder's first
/// token, for prompts of 128 to 32,768 tokens of a Llama-3-8B-shaped cache.
///
/// The synthetic runner writes each token's KV and takes at least [EngineChild#TOKEN_TIME] per
/// token. A first pass with a decoder that verifies every loaded byte shows that the cache is
/// transferred correctly. The measured engines are new, and the first hand-off of each size, which
/// includes class loading, compilation and connecting, is reported separately from those after a
/// warm-up.
@Command(
        name = "handoff",
        description =
                "Prefill finished at P to KV used at D, two JVMs, Llama-3-8B-shaped cache, by connector.")
public final class HandOffBenchmark extends Benchmark {
    private static final int[] TOKENS = {128, 512, 2048, 8192, 32_768};
    private static final int QUICK = 2048;
    private static final int ROUNDS = 9;
    private static final List<String> WAYS =
            List.of("tcp", "same-host", "p2p", "disk", "disk-defaults");

    /// What DiskConnector aims for, and makes of this cache.
    private static final int FILE_BYTES = 4 << 20;

    /// Least time of hand-offs of a size before those that are measured.
    private static final Duration WARM_UP = Duration.ofSeconds(3);

    /// Of hand-offs before those of any size, so that what runs once for each is compiled.
    private static final int WARM_TOKENS = 512;

    @Option(names = "--tokens", split = ",", description = "Lengths of the prompts.")
    private int @Nullable [] tokens;

    @Option(
            names = "--only",
            split = ",",
            description = "Of tcp, same-host, p2p, disk, disk-defaults.")
    private List<String> only = WAYS;

    @Option(
            names = "--aot",
            description = "Start the measured engines from AOT caches of those that verify.")
    private boolean aot;

    @Option(names = "--dir", description = "Where DiskConnector makes its folder.")
    private Path dir = Path.of(System.getProperty("java.io.tmpdir"));

    @Override
    protected void run() throws Exception {
        var sizes =
                tokens == null
                        ? Arrays.stream(TOKENS).filter(size -> !quick || size <= QUICK).toArray()
                        : tokens;
        refuseUnknown("--only", only, WAYS);
        var table =
                new Table(
                        "connector",
                        "tokens",
                        "MB",
                        "first ms",
                        "hand-off ms",
                        "GB/s",
                        "TTFT ms",
                        "hand-off, % of TTFT",
                        "limit ms",
                        "of limit: min, median, max",
                        "CPU s/GB",
                        "limit CPU s/GB",
                        "save, gap, load ms",
                        "of the first");
        if (only.contains("tcp")) {
            measure(Route.Mooncake.onFreePort(false), sizes, Optional.empty(), table);
        }
        if (only.contains("same-host")) {
            try (var copy = new CopyLimit()) {
                measure(Route.Mooncake.onFreePort(true), sizes, Optional.of(copy), table);
            }
        }
        if (only.contains("p2p")) {
            for (var sendType : List.of("PUT_ASYNC", "PUT", "GET")) {
                measure(Route.P2p.onFreePort(sendType), sizes, Optional.empty(), table);
            }
        }
        for (var way : List.of("disk", "disk-defaults")) {
            if (!only.contains(way)) {
                continue;
            }
            var folder = Files.createTempDirectory(dir, "kvferry-handoff");
            try {
                int threads = Runtime.getRuntime().availableProcessors();
                var kv = folder.resolve("kv");
                var route =
                        way.equals("disk")
                                ? Route.Disk.withThreads(kv, threads)
                                : Route.Disk.withDefaults(kv);
                measure(route, sizes, diskLimit(folder, threads), table);
            } finally {
                Folders.delete(folder);
            }
        }
        table.print();
        System.out.println(
                """
                Hand-off: prefill finished at P until the first token at D; the first of each size in new engines, and \
                medians of %d after
                hand-offs until the compilers of both engines were done. TTFT: request submitted until that token; prefill takes %s per token or, where that \
                is longer, the writing of the KV.
                Limit, in turns with the hand-offs: of the same host a copy in memory by as many threads as the engine uses; of the disk \
                fio, which writes as many bytes to files
                of 4 MiB and reads them back from the page cache, with a thread per processor, as many as the connector \
                has but for "defaults". Of limit: its time by that of
                the hand-off. Of the disk: before each turn all that is not on the medium is brought there, and old files \
                are deleted. Save: until P has
                saved all; what it saved while it computed is done by then. Gap: until D got the request. Load: until D's \
                token. PUT and PUT_ASYNC send in the last step of the prefill, which thereby ends later: compare TTFT.\
                """
                        .formatted(ROUNDS, EngineChild.TOKEN_TIME));
    }

    private void measure(Route route, int[] sizes, Optional<? extends Limit> limit, Table table)
            throws Exception {
        try (var caches = AotCaches.of(aot)) {
            measure(route, sizes, limit, caches, table);
        }
    }

    private static void measure(
            Route route,
            int[] sizes,
            Optional<? extends Limit> limit,
            AotCaches caches,
            Table table)
            throws Exception {
        int longest = Math.max(WARM_TOKENS, Arrays.stream(sizes).max().orElseThrow());
        try (var prefill =
                new EngineProcess(route.prefillConfig(), longest, "none", caches.prefill())) {
            prefill.awaitReady();
            try (var decode =
                    new EngineProcess(route.decodeConfig(), longest, "loaded", caches.decode())) {
                decode.awaitReady();
                for (int tokens : sizes) {
                    send(route, prefill, decode, "verified-" + tokens, tokens);
                }
            }
        }
        caches.requireWritten();
        try (var prefill =
                        new EngineProcess(
                                route.prefillConfig(), longest, "none", caches.prefill());
                var decode =
                        new EngineProcess(route.decodeConfig(), longest, "none", caches.decode())) {
            prefill.awaitReady();
            decode.awaitReady();
            var first = new Route.Pair[sizes.length];
            for (int i = 0; i < sizes.length; i++) {
                route.reset();
                first[i] = send(route, prefill, decode, "first-" + i, sizes[i]);
            }
            if (Arrays.stream(sizes).noneMatch(size -> size == WARM_TOKENS)) {
                warmUp(route, prefill, decode, WARM_TOKENS, first[sizes.length - 1]);
            }
            for (int i = 0; i < sizes.length; i++) {
                row(route, prefill, decode, sizes[i], first[i], limit, table);
            }
        }
    }

    /// @param last hand-off of these engines
    private static void warmUp(
            Route route, EngineProcess prefill, EngineProcess decode, int tokens, Route.Pair last)
            throws Exception {
        var compiled = new AtomicLong(last.compileMillis());
        var count = new AtomicInteger();
        WarmUp.until(
                route.connector() + ", " + tokens + " tokens",
                WARM_UP,
                compiled::get,
                () -> {
                    route.reset();
                    var id = "warm-" + tokens + "-" + count.getAndIncrement();
                    compiled.set(send(route, prefill, decode, id, tokens).compileMillis());
                });
    }

    private static void row(
            Route route,
            EngineProcess prefill,
            EngineProcess decode,
            int tokens,
            Route.Pair first,
            Optional<? extends Limit> limit,
            Table table)
            throws Exception {
        warmUp(route, prefill, decode, tokens, first);
        var pairs = new Route.Pair[ROUNDS];
        var limits = new Limit.Cost[ROUNDS];
        var ratios = new double[ROUNDS];
        double bytes = tokens * EngineChild.BYTES_PER_TOKEN;
        for (int round = 0; round < ROUNDS; round++) {
            for (int turn = 0; turn < 2; turn++) {
                route.reset();
                if (turn == round % 2) {
                    pairs[round] = send(route, prefill, decode, tokens + "-" + round, tokens);
                } else if (limit.isPresent()) {
                    limits[round] = limit.get().of((long) bytes);
                }
            }
            ratios[round] =
                    limit.isEmpty()
                            ? 0
                            : (double) limits[round].nanos() / pairs[round].handOffNanos();
        }
        Arrays.sort(ratios);
        double handOff = median(pairs, Route.Pair::handOffNanos);
        double ttft = median(pairs, Route.Pair::ttftNanos);
        table.row(
                route.connector(),
                tokens,
                Math.round(bytes / 1e6),
                first.handOffNanos() / 1e6,
                handOff / 1e6,
                bytes / handOff,
                ttft / 1e6,
                100.0 * handOff / ttft,
                limit.isEmpty() ? "-" : median(limits, Limit.Cost::nanos) / 1e6,
                limit.isEmpty()
                        ? "-"
                        : "%.2f, %.2f, %.2f"
                                .formatted(ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]),
                median(pairs, Route.Pair::cpuNanos) / bytes,
                limit.isEmpty() ? "-" : median(limits, Limit.Cost::cpuNanos) / bytes,
                route.inTurns() ? parts(pairs) : "-",
                route.inTurns() ? parts(first) : "-");
    }

    /// The limit of DiskConnector with its folder below this one; empty without fio.
    static Optional<FioLimit> diskLimit(Path folder, int threads) {
        return Fio.find().map(fio -> new FioLimit(fio, folder.resolve("fio"), FILE_BYTES, threads));
    }

    /// Medians.
    static String parts(Route.Pair... pairs) {
        return IntStream.range(0, 3)
                .mapToObj(part -> median(pairs, pair -> pair.partsNanos()[part]) / 1e6)
                .map("%.1f"::formatted)
                .collect(Collectors.joining(", "));
    }

    private static <T> double median(T[] all, ToLongFunction<T> figure) {
        return Arrays.stream(all).mapToLong(figure).sorted().toArray()[all.length / 2];
    }

    private static Route.Pair send(
            Route route, EngineProcess prefill, EngineProcess decode, String id, int tokens) {
        var pair = route.send(prefill, decode, id, tokens);
        // A decoder computes the last token of a prompt again to sample from it.
        if (pair.decode().loaded() < tokens - EngineChild.BLOCK_TOKENS) {
            throw new IllegalStateException(
                    "only "
                            + pair.decode().loaded()
                            + " of "
                            + tokens
                            + " tokens were handed over");
        }
        return pair;
    }
}
