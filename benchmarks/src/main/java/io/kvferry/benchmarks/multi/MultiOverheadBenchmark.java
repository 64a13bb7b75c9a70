// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.multi;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Table;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.SelectedKv;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.observe.EventSink;

import picocli.CommandLine.Command;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;

/// Overhead of MultiConnector with a single child over that child alone, as part of an engine step
/// with 256 running requests.
///
/// The engine runs no model, so a step is as short as possible: scheduling, plan, report. The
/// relative overhead is therefore an upper bound for a real engine. Measures CPU time, so that
/// other load on the machine matters little.
@Command(
        name = "multi-overhead",
        description =
                "MultiConnector over its only child: share of an engine step with 256 running requests.")
public final class MultiOverheadBenchmark extends Benchmark {
    private static final int REQUESTS = 256;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final String ALONE =
            """
            {"kv_connector": "PlanningConnector", "kv_role": "kv_both"}\
            """;
    private static final String COMPOSED =
            """
            {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config":
             {"connectors": [{"kv_connector": "PlanningConnector"}]}}\
            """;

    @Override
    protected void run() throws Exception {
        int rounds = quick ? 5 : 15;
        int slice = quick ? 500 : 1_000;
        var catalog =
                PluginCatalog.ofClassPath()
                        .with(KvConnectorProvider.class, new PlanningConnector());
        try (var kvferry = Kvferry.open(catalog, EventSink.NONE)) {
            var alone = kvferry.kv(ALONE);
            var composed = kvferry.kv(COMPOSED);
            var halves = halves(alone, composed, rounds, quick ? 2_000 : 10_000);
            var engines = engines(kvferry, alone, composed, rounds, slice);
            var table =
                    new Table(
                            "what",
                            "child alone, us",
                            "in MultiConnector, us",
                            "difference, us",
                            "of an engine step, %");
            row(table, "connector calls of one step (median)", halves, engines[0]);
            row(table, "whole engine step, no model (median)", engines, engines[0]);
            table.print();
            System.out.println(
                    "The first row is the measure (aim: at most 2 %); the second has the noise of the whole engine.");
        }
    }

    private static void row(Table table, String what, double[] nanos, double step) {
        table.row(
                what,
                nanos[0] / 1e3,
                nanos[1] / 1e3,
                (nanos[1] - nanos[0]) / 1e3,
                100 * (nanos[1] - nanos[0]) / step);
    }

    /// Medians of both, measured alternately so that changing load affects both.
    private static double[] halves(SelectedKv alone, SelectedKv composed, int rounds, int steps) {
        try (var one = new Halves(alone, REQUESTS);
                var other = new Halves(composed, REQUESTS)) {
            one.nanosPerStep(steps);
            other.nanosPerStep(steps);
            var first = new double[rounds];
            var second = new double[rounds];
            for (int i = 0; i < rounds; i++) {
                first[i] = one.nanosPerStep(steps);
                second[i] = other.nanosPerStep(steps);
            }
            return new double[] {median(first), median(second)};
        }
    }

    private static double[] engines(
            Kvferry kvferry, SelectedKv alone, SelectedKv composed, int rounds, int slice) {
        int most = (rounds + 4) * slice + 64;
        try (var one = engine(kvferry, alone, most);
                var other = engine(kvferry, composed, most)) {
            for (int i = 0; i < 2; i++) {
                nanosPerStep(one, slice);
                nanosPerStep(other, slice);
            }
            var first = new double[rounds];
            var second = new double[rounds];
            for (int i = 0; i < rounds; i++) {
                first[i] = nanosPerStep(one, slice);
                second[i] = nanosPerStep(other, slice);
            }
            return new double[] {median(first), median(second)};
        }
    }

    private static Engine engine(Kvferry kvferry, SelectedKv selected, int tokens) {
        var options =
                Map.<String, Object>of(
                        "layers",
                        1L,
                        "kv_heads",
                        1L,
                        "head_dim",
                        2L,
                        "fill",
                        "no",
                        "verify",
                        "none");
        var engine =
                Engine.open(
                        EngineConfig.of(new SyntheticProvider(), Path.of("."), options)
                                .kvConnector(selected.provider(), selected.config())
                                .host(kvferry.services())
                                .stepTokens(REQUESTS * 32)
                                .blockCount(REQUESTS * (tokens / 16 + 4))
                                .prefixCache(false));
        var prompt = new int[32];
        for (int i = 0; i < REQUESTS; i++) {
            Arrays.fill(prompt, i);
            engine.submit(
                    GenerationRequest.of(
                            prompt.clone(), SamplingParams.greedy(tokens).withIgnoreEos(true)));
        }
        while (engine.stats().running() < REQUESTS) {
            engine.step();
        }
        return engine;
    }

    private static double nanosPerStep(Engine engine, int steps) {
        long start = cpuNanos();
        for (int i = 0; i < steps; i++) {
            engine.step();
        }
        double nanos = (double) (cpuNanos() - start) / steps;
        if (engine.stats().running() != REQUESTS) {
            throw new IllegalStateException("requests ended during the measurement");
        }
        return nanos;
    }

    /// Of all Java threads, so that worker threads count and the compiler does not.
    private static long cpuNanos() {
        long sum = 0;
        for (long id : THREADS.getAllThreadIds()) {
            sum += Math.max(0, THREADS.getThreadCpuTime(id));
        }
        return sum;
    }

    private static double median(double[] values) {
        var sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }
}
