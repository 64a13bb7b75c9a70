// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.engine;

import io.kvferry.benchmarks.Allocation;
import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Table;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.Workers;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;

import picocli.CommandLine.Command;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/// Steps per second and bytes allocated per step with 256 running requests; lookup of prompts of
/// 1k, 10k and 100k blocks. The model computes nothing and writes nothing, so the engine is all
/// that is measured.
@Command(
        name = "scheduler",
        description =
                "Steps and lookups of the engine with a no-op connector, beside the engine without one.")
public final class SchedulerBenchmark extends Benchmark {
    private static final int BLOCK_TOKENS = 16;
    private static final int RUNNING = 256;

    /// The time of the scheduler thread on a processor, which other work on the machine prolongs
    /// less than the time on the clock.
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    /// The steps are timed in so many batches, of which the median counts.
    private static final int BATCHES = 20;

    /// Steps of an engine before the first that is timed, however few those are.
    private static final int WARM_UP = 20_000;

    /// Time for steps of engines that are not measured, before those that are. The compiler takes
    /// longer with a step than [#WARM_UP] steps do.
    private static final Duration COMPILING = Duration.ofSeconds(3);

    /// A lookup is repeated until so many blocks have been looked up, before it is measured and
    /// again while it is, so that short prompts do not measure cold code.
    private static final int LOOKED_UP = 1_000_000;

    @Override
    protected void run() {
        steps(quick ? 2_000 : 20_000);
        lookups(quick ? LOOKED_UP / 10 : LOOKED_UP);
    }

    private static EngineConfig config(int blocks) {
        return EngineConfig.of(new NullRunner(), Path.of(""), Map.of())
                .blockTokens(BLOCK_TOKENS)
                .blockCount(blocks)
                .stepTokens(1 << 25)
                .maxRunning(RUNNING)
                .closeLimit(Duration.ZERO);
    }

    private static EngineConfig withNoop(EngineConfig config) {
        return with(new NoopKv(), config);
    }

    private static EngineConfig with(NoopKv connector, EngineConfig config) {
        return config.kvConnector(
                connector, ConnectorConfig.of("noop", KvRole.BOTH, "benchmark", Map.of()));
    }

    private static void steps(int steps) {
        var table =
                new Table(
                        "256 running requests",
                        "steps/s",
                        "us/step",
                        "CPU us/step",
                        "ns/request",
                        "B/step",
                        "B/request",
                        "ratio");
        int blocks = RUNNING * (2 + (tokens(steps) + 64) / BLOCK_TOKENS);
        var compiling = Deadline.in(COMPILING);
        while (!compiling.passed()) {
            runUnmeasured(config(blocks), steps);
        }
        double alone = steps(table, "no connector", config(blocks), steps, 0);
        steps(table, "no-op connector", withNoop(config(blocks)), steps, alone);
        steps(
                table,
                "connector with 30 counters",
                with(new NoopKv(30), config(blocks)),
                steps,
                alone);
        steps(table, "no connector, a reader each", config(blocks), steps, alone, Crowd.READERS);
        steps(table, "no connector, 3800 waiting", config(blocks), steps, alone, Crowd.WAITING);
        var children = new Workers.ChildProcesses(List.of("-Xmx256m"), "");
        steps(
                table,
                "no connector, worker in a child JVM",
                config(blocks).workers(children),
                steps,
                alone);
        table.print();
    }

    /// Enough for every running request to go on until the last step.
    private static int tokens(int steps) {
        return WARM_UP + 2 * steps;
    }

    /// Who else there is beside the running requests.
    private enum Crowd {
        NOBODY,
        /// A thread for each running request that takes its tokens as they come.
        READERS,
        /// 3,800 requests that wait for a place.
        WAITING
    }

    private static void runUnmeasured(EngineConfig config, int steps) {
        try (var engine = Engine.open(config)) {
            submit(engine, steps, Crowd.NOBODY);
            for (int i = 0; i < WARM_UP; i++) {
                engine.step();
            }
        }
    }

    private static double steps(
            Table table, String what, EngineConfig config, int steps, double reference) {
        return steps(table, what, config, steps, reference, Crowd.NOBODY);
    }

    private static void submit(Engine engine, int steps, Crowd crowd) {
        for (int i = 0; i < RUNNING; i++) {
            var prompt = new int[BLOCK_TOKENS];
            Arrays.fill(prompt, i);
            var handle =
                    engine.submit(
                            GenerationRequest.of(prompt, SamplingParams.greedy(tokens(steps))));
            if (crowd == Crowd.READERS) {
                Thread.ofPlatform().daemon().name("reader-" + i).start(() -> read(handle));
            }
        }
        for (int i = 0; crowd == Crowd.WAITING && i < 3_800; i++) {
            engine.submit(GenerationRequest.of(new int[] {i % 256}, SamplingParams.greedy(1)));
        }
    }

    private static void read(RequestHandle handle) {
        while (handle.next(Deadline.in(Duration.ofMinutes(10))).orElseThrow()
                instanceof RequestHandle.StreamEvent.Token) {
            // as a server does that passes them on
        }
    }

    private static double steps(
            Table table,
            String what,
            EngineConfig config,
            int steps,
            double reference,
            Crowd crowd) {
        try (var engine = Engine.open(config)) {
            submit(engine, steps, crowd);
            for (int i = 0; i < WARM_UP; i++) {
                engine.step();
            }
            long allocated = Allocation.ofThisThread();
            var batches = new long[BATCHES];
            var cpu = new long[BATCHES];
            for (int batch = 0; batch < BATCHES; batch++) {
                long begin = System.nanoTime();
                long beginCpu = THREADS.getCurrentThreadCpuTime();
                for (int i = 0; i < steps / BATCHES; i++) {
                    engine.step();
                }
                batches[batch] = System.nanoTime() - begin;
                cpu[batch] = THREADS.getCurrentThreadCpuTime() - beginCpu;
            }
            Arrays.sort(batches);
            Arrays.sort(cpu);
            double nanos = (double) batches[BATCHES / 2] * BATCHES / steps;
            double bytes = (double) (Allocation.ofThisThread() - allocated) / steps;
            if (engine.stats().running() != RUNNING) {
                throw new IllegalStateException(
                        "only " + engine.stats().running() + " requests ran");
            }
            table.row(
                    what,
                    Math.round(1e9 / nanos),
                    nanos / 1000,
                    (double) cpu[BATCHES / 2] * BATCHES / steps / 1000,
                    nanos / RUNNING,
                    bytes,
                    bytes / RUNNING,
                    reference == 0 ? 1.0 : reference / nanos);
            return nanos;
        }
    }

    private static void lookups(int lookedUp) {
        var table =
                new Table(
                        "lookup of a cached prompt, median",
                        "lookup us",
                        "ns/block",
                        "ratio to 1k",
                        "B/block",
                        "hash us",
                        "ns/block",
                        "ratio to 1k");
        var shortest = new Cost(0, 0, 0);
        for (int blocks : new int[] {1_000, 10_000, 100_000}) {
            var cost = lookup(blocks, Math.max(3, lookedUp / blocks));
            shortest = shortest.lookup == 0 ? cost : shortest;
            table.row(
                    blocks + " blocks",
                    cost.lookup * blocks / 1000,
                    cost.lookup,
                    cost.lookup / shortest.lookup,
                    cost.bytes,
                    cost.hash * blocks / 1000,
                    cost.hash,
                    cost.hash / shortest.hash);
        }
        table.print();
    }

    /// Nanoseconds and bytes per block; a ratio of 1 to those of a shorter prompt is linear growth.
    private record Cost(double lookup, double bytes, double hash) {}

    /// The median of several rounds: hashing happens in `submit`, on the client's thread; the
    /// lookup in the step that admits the request, which then computes one token and ends it.
    private static Cost lookup(int blocks, int rounds) {
        var prompt = new int[blocks * BLOCK_TOKENS];
        for (int i = 0; i < prompt.length; i++) {
            prompt[i] = 1 + i % 241;
        }
        try (var engine = Engine.open(withNoop(config(2 * blocks)))) {
            var hash = new long[rounds];
            var lookup = new long[rounds];
            long bytes = 0;
            for (int round = -rounds; round < rounds; round++) {
                long begin = System.nanoTime();
                var handle = engine.submit(GenerationRequest.of(prompt, SamplingParams.greedy(1)));
                long submitted = System.nanoTime();
                long allocated = Allocation.ofThisThread();
                engine.step();
                long stepped = System.nanoTime();
                if (handle.await(Deadline.in(Duration.ZERO)).isEmpty()) {
                    throw new IllegalStateException("not admitted and finished in one step");
                }
                bytes = Allocation.ofThisThread() - allocated;
                if (round >= 0) {
                    hash[round] = submitted - begin;
                    lookup[round] = stepped - submitted;
                }
            }
            Arrays.sort(hash);
            Arrays.sort(lookup);
            return new Cost(
                    (double) lookup[rounds / 2] / blocks,
                    (double) bytes / blocks,
                    (double) hash[rounds / 2] / blocks);
        }
    }
}
