// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.benchmarks.Table;
import io.kvferry.benchmarks.mooncake.FirstTransfer;

import org.jspecify.annotations.Nullable;

import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.function.ToDoubleFunction;
import java.util.stream.Collectors;
import java.util.stream.DoubleStream;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/// Additional cost of the first hand-offs of new JVMs, in quantities that do not depend on the load
/// of the machine: CPU time, classes, compilation, page faults. Also the single steps of a first
/// transfer.
@Command(
        name = "first-handoff",
        description =
                "First hand-offs of new JVMs: time, processor time, classes, compilation, page faults; and their steps.")
public final class FirstHandOffBenchmark extends Benchmark {
    private static final int HAND_OFFS = 5;
    private static final List<String> WAYS = List.of("tcp", "same-host", "disk");

    @Option(names = "--pairs", description = "Pairs of JVMs.")
    private @Nullable Integer pairs;

    @Option(names = "--tokens", description = "Length of the prompts.")
    private int tokens = 128;

    @Option(names = "--only", split = ",", description = "Of tcp, same-host, disk.")
    private List<String> only = WAYS;

    @Option(
            names = "--aot",
            description = "Start the engines from AOT caches that a pair before them wrote.")
    private boolean aot;

    @Option(names = "--dir", description = "Where DiskConnector makes its folder.")
    private @Nullable Path dir;

    @Override
    protected void run() throws Exception {
        refuseUnknown("--only", only, WAYS);
        int count = pairs != null ? pairs : quick ? 3 : 7;
        var folder = Files.createTempDirectory("kvferry-first");
        try {
            var table =
                    new Table(
                            "connector",
                            "hand-off",
                            "ms: min, median, max",
                            "save, gap, load ms",
                            "limit ms: min, median, max",
                            "of limit: min, median, max",
                            "P: CPU ms",
                            "of it compiling",
                            "classes",
                            "faults",
                            "D: CPU ms",
                            "of it compiling",
                            "classes",
                            "faults");
            var origins = new ArrayList<String>();
            for (boolean sameHost : new boolean[] {true, false}) {
                if (only.contains(sameHost ? "same-host" : "tcp")) {
                    measure(
                            () -> Route.Mooncake.onFreePort(sameHost),
                            count,
                            folder,
                            Optional.empty(),
                            table,
                            origins);
                }
            }
            if (only.contains("disk")) {
                var stored = Files.createTempDirectory(dir != null ? dir : folder, "kvferry-first");
                try {
                    int threads = Runtime.getRuntime().availableProcessors();
                    measure(
                            () -> Route.Disk.withThreads(stored.resolve("kv"), threads),
                            count,
                            folder,
                            HandOffBenchmark.diskLimit(stored, threads),
                            table,
                            origins);
                } finally {
                    Folders.delete(stored);
                }
            }
            table.print();
            System.out.println(
                    "Medians of "
                            + count
                            + " pairs of new JVMs, prompts of "
                            + tokens
                            + " tokens. P from the end of its prefill until its blocks are free, D from the"
                            + " request to its token.");
            origins.forEach(System.out::println);
            System.out.println();
        } finally {
            Folders.delete(folder);
        }
        if (only.containsAll(WAYS)) {
            FirstTransfer.print(count);
        }
    }

    private void measure(
            Callable<Route> routes,
            int count,
            Path folder,
            Optional<? extends Limit> limit,
            Table table,
            List<String> origins)
            throws Exception {
        var byNumber = new ArrayList<List<Route.Pair>>();
        var limits = new ArrayList<List<Limit.Cost>>();
        for (int i = 0; i < HAND_OFFS; i++) {
            byNumber.add(new ArrayList<>());
            limits.add(new ArrayList<>());
        }
        var name = "";
        try (var caches = AotCaches.of(aot)) {
            if (aot) {
                write(caches, routes.call());
            }
            for (int pair = 0; pair < count; pair++) {
                var route = routes.call();
                name = route.connector();
                var prefillLog = new ClassLog(Files.createTempFile(folder, "p-", ""));
                var decodeLog = new ClassLog(Files.createTempFile(folder, "d-", ""));
                try (var prefill = child(route.prefillConfig(), prefillLog, caches.prefill());
                        var decode = child(route.decodeConfig(), decodeLog, caches.decode())) {
                    prefill.awaitReady();
                    decode.awaitReady();
                    for (int i = 0; i < HAND_OFFS; i++) {
                        route.reset();
                        if (limit.isPresent()) {
                            limits.get(i).add(limit.get().of(tokens * EngineChild.BYTES_PER_TOKEN));
                            route.reset();
                        }
                        byNumber.get(i).add(route.send(prefill, decode, "first-" + i, tokens));
                    }
                }
                if (pair == count - 1) {
                    var first = byNumber.getFirst().getLast();
                    origins.add(
                            name + ", classes of the first at P: " + prefillLog.atPrefill(first));
                    origins.add(name + ", at D: " + decodeLog.atDecode(first));
                }
            }
        }
        for (int i = 0; i < HAND_OFFS; i++) {
            row(name, i + 1, byNumber.get(i), limits.get(i), table);
        }
    }

    /// Has a pair of engines hand over as many prompts, and write the caches when it ends.
    private void write(AotCaches caches, Route route) throws Exception {
        try (var prefill =
                        new EngineProcess(route.prefillConfig(), tokens, "none", caches.prefill());
                var decode =
                        new EngineProcess(route.decodeConfig(), tokens, "none", caches.decode())) {
            prefill.awaitReady();
            decode.awaitReady();
            for (int i = 0; i < HAND_OFFS; i++) {
                route.reset();
                route.send(prefill, decode, "before-" + i, tokens);
            }
        }
        caches.requireWritten();
    }

    private EngineProcess child(String config, ClassLog log, List<String> cache) throws Exception {
        var options = new ArrayList<>(log.option());
        options.addAll(cache);
        return new EngineProcess(config, tokens, "none", options);
    }

    /// From the end of the prefill until its blocks are free.
    private static ProcessCost prefill(Route.Pair pair) {
        return pair.prefill().idle().cost().since(pair.prefill().token().cost());
    }

    /// From the request to its token.
    private static ProcessCost decode(Route.Pair pair) {
        return pair.decode().token().cost().since(pair.decode().begun().cost());
    }

    /// @param limits of each pair; empty where there is none
    private static void row(
            String name, int number, List<Route.Pair> pairs, List<Limit.Cost> limits, Table table) {
        var cells = new ArrayList<Object>();
        cells.add(name);
        cells.add(number);
        cells.add(spread("%.0f", pairs.stream().mapToDouble(pair -> pair.handOffNanos() / 1e6)));
        cells.add(HandOffBenchmark.parts(pairs.toArray(Route.Pair[]::new)));
        cells.add(
                limits.isEmpty()
                        ? "-"
                        : spread("%.0f", limits.stream().mapToDouble(each -> each.nanos() / 1e6)));
        cells.add(
                limits.isEmpty()
                        ? "-"
                        : spread(
                                "%.2f",
                                IntStream.range(0, pairs.size())
                                        .mapToDouble(i ->
                                                (double) limits.get(i).nanos()
                                                        / pairs.get(i).handOffNanos())));
        Stream.<ToDoubleFunction<Route.Pair>>of(
                        pair -> prefill(pair).cpuNanos() / 1e6,
                        pair -> prefill(pair).compileMillis(),
                        pair -> prefill(pair).classes(),
                        pair -> prefill(pair).faults(),
                        pair -> decode(pair).cpuNanos() / 1e6,
                        pair -> decode(pair).compileMillis(),
                        pair -> decode(pair).classes(),
                        pair -> decode(pair).faults())
                .forEach(quantity -> cells.add(Math.round(median(pairs, quantity))));
        table.row(cells.toArray());
    }

    /// Least, median and greatest.
    private static String spread(String format, DoubleStream all) {
        double[] sorted = all.sorted().toArray();
        return DoubleStream.of(sorted[0], sorted[sorted.length / 2], sorted[sorted.length - 1])
                .mapToObj(format::formatted)
                .collect(Collectors.joining(", "));
    }

    private static double median(List<Route.Pair> pairs, ToDoubleFunction<Route.Pair> quantity) {
        return pairs.stream().mapToDouble(quantity).sorted().toArray()[pairs.size() / 2];
    }
}
