// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static io.kvferry.backend.nccl.engines.P2pEngines.alone;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.options;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokensAlone;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.Workers;
import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.engine.worker.WorkerHost;
import io.kvferry.engine.worker.process.ThreadWorkers;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;

/// A prefiller and a decoder, stepped in random order, with block pools that are too small, chunked
/// prompts that share prefixes, requests of one side only, aborts, transfers that break off and
/// workers that die: whatever the order, tokens are right (the model verifies every byte that was
/// loaded), every request gets an outcome, and every block and all staging memory come back.
class InterleavingTest {
    private static final int PROMPTS = 6;
    private static final int TOKENS = 12;
    private static final int BLOCKS = 24;
    private static final Map<String, Object> MODEL =
            Map.of("verify", "all", "layers", 2L, "head_dim", 8L, "kv_heads", 4L);

    @ParameterizedTest
    @CsvSource({"HOST,24", "NCCL,12"})
    void keepsItsInvariantsInInterleavings(TestPlane plane, int runs) throws IOException {
        run(0, runs, plane);
    }

    @ParameterizedTest
    @EnumSource
    @Tag("soak")
    @Timeout(7200)
    void keepsItsInvariantsInManyInterleavings(TestPlane plane) throws IOException {
        long first = Long.getLong("kvferry.soak.first_seed", 1000);
        run(first, first + Long.getLong("kvferry.soak.seeds", 1000), plane);
    }

    private static void run(long from, long to, TestPlane plane) throws IOException {
        var expected = new ArrayList<List<Integer>>();
        try (var alone = alone(MODEL)) {
            for (int i = 0; i < PROMPTS; i++) {
                expected.add(tokensAlone(alone, prompt(i), TOKENS));
            }
        }
        long handedOver = 0;
        long failed = 0;
        plane.begin();
        for (long seed = from; seed < to; seed++) {
            var run = new Run(seed, expected, plane);
            run.run();
            handedOver += run.handedOver;
            failed += run.failed;
        }
        plane.end();
        assertThat(handedOver).as("loads that ended well").isPositive();
        assertThat(failed).as("loads that failed").isPositive();
    }

    /// Pairs share a prefix.
    private static int[] prompt(int i) {
        var prompt = P2pEngines.prompt(i / 2, 20 + 31 * i);
        prompt[prompt.length - 1] = 1 + i;
        return prompt;
    }

    private record Submitted(RequestHandle handle, int prompt, boolean aborted) {}

    /// One side, whose ranks run in it or behind the transport of worker processes.
    private static final class Side implements AutoCloseable {
        final Engine engine;
        final ThreadWorkers threads;
        final boolean mortal;
        final List<Submitted> submitted = new ArrayList<>();
        boolean killed;

        Side(Engine engine, ThreadWorkers threads, boolean mortal) {
            this.engine = engine;
            this.threads = threads;
            this.mortal = mortal;
        }

        boolean done() {
            var stats = engine.stats();
            return stats.freeBlocks() == stats.totalBlocks()
                    && stats.held() == 0
                    && stats.leasedBlocks() == 0
                    && stats.quarantinedBlocks() == 0
                    && stats.degraded().isEmpty()
                    && submitted.stream()
                            .allMatch(each ->
                                    each.handle.await(Deadline.in(Duration.ZERO)).isPresent());
        }

        void mayKill(Random random) {
            var running = threads.running();
            if (mortal && !running.isEmpty() && engine.stats().degraded().isEmpty()) {
                killed = true;
                running.get(random.nextInt(running.size())).kill();
            }
        }

        void mayAbort(Random random) {
            if (!submitted.isEmpty()) {
                int victim = random.nextInt(submitted.size());
                var old = submitted.get(victim);
                old.handle.abort();
                submitted.set(victim, new Submitted(old.handle, old.prompt, true));
            }
        }

        @Override
        public void close() {
            engine.close();
        }
    }

    /// The product, on a plane that breaks now and then where `breaks` says so.
    private static final class Breaking extends AlteredP2p {
        private final long seed;
        private final boolean breaks;
        private final TestPlane plane;

        Breaking(long seed, boolean breaks, TestPlane plane) {
            this.seed = seed;
            this.breaks = breaks;
            this.plane = plane;
        }

        @Override
        public WorkerConnector openWorker(WorkerContext context) {
            var opened = plane.open();
            return new P2pWorker(
                    context,
                    breaks ? new BreakingPlane(opened, seed + context.rank().rank()) : opened);
        }
    }

    private record Host(KvConnectorProvider kv, HostServices services) implements WorkerHost {
        @Override
        public void configure(String hostConfig, EventSink events) {}

        @Override
        public ModelRunnerProvider runner(String name) {
            return new SyntheticProvider();
        }

        @Override
        public KvConnectorProvider kvConnector(String name) {
            return kv;
        }

        @Override
        public EcConnectorProvider ecConnector(String name) {
            throw new KvFerryException(ErrorCode.BAD_CONFIG, "no encoder cache here");
        }
    }

    private static final class Run {
        final long seed;
        final Random random;
        final List<List<Integer>> expected;
        final TestPlane plane;
        final String mode;
        final int ranks;
        final int pPort;
        final int dPort;
        final LoadFailurePolicy policy;
        int transfers;
        long handedOver;
        long failed;

        Run(long seed, List<List<Integer>> expected, TestPlane plane) throws IOException {
            this.seed = seed;
            this.expected = expected;
            this.plane = plane;
            random = new Random(seed);
            mode = List.of("PUT_ASYNC", "PUT", "GET").get(random.nextInt(3));
            ranks = 1 + random.nextInt(2);
            pPort = freePorts(ranks);
            dPort = freePorts(ranks);
            policy = random.nextBoolean() ? LoadFailurePolicy.FAIL : LoadFailurePolicy.RECOMPUTE;
        }

        Side open(KvRole role, int port, StagingPool pool) {
            var options = new HashMap<>(options(mode, port));
            options.put("receive_timeout", "150ms");
            options.put("transfer_timeout", "150ms");
            options.put("hold_timeout", "150ms");
            options.put("staged_timeout", "150ms");
            options.put("push_timeout", "50ms");
            if (random.nextInt(3) == 0) {
                options.put("max_loads", 1L + random.nextInt(3));
            }
            var kv = new Breaking(seed, random.nextBoolean(), plane);
            var services = P2pEngines.host(pool);
            var threads = new ThreadWorkers(_ -> new Host(kv, services));
            boolean mortal = random.nextInt(4) == 0;
            var config =
                    EngineConfig.of(new SyntheticProvider(), Path.of("."), MODEL)
                            .worldSize(ranks)
                            .blockCount(BLOCKS)
                            .stepTokens(16 + random.nextInt(60))
                            .maxRunning(1 + random.nextInt(4))
                            .prefixCache(random.nextBoolean())
                            .loadLimit(Duration.ofSeconds(1))
                            .revokeLimit(Duration.ofSeconds(1))
                            .closeLimit(Duration.ofMillis(100))
                            .workerRestarts(1000, Duration.ofMinutes(10))
                            .connectorPause(Duration.ofMillis(10))
                            .workers(
                                    mortal
                                            ? new Workers.Launched(threads, "")
                                            : new Workers.InProcess())
                            .host(services)
                            .kvConnector(
                                    kv,
                                    ConnectorConfig.of(
                                            "P2pNcclConnector", role, role.name(), options));
            return new Side(Engine.open(config), threads, mortal);
        }

        void run() {
            long room = List.of(1L << 14, 1L << 17, 1L << 22).get(random.nextInt(3));
            try (var pool = new BuddyStagingPool(room);
                    var p = open(KvRole.PRODUCER, pPort, StagingPool.NONE);
                    var d = open(KvRole.CONSUMER, dPort, pool)) {
                for (int i = 0; i < 60; i++) {
                    act(p, d);
                    var side = random.nextBoolean() ? p : d;
                    side.engine.step();
                    side.engine.checkInvariants();
                }
                finish(p, d, pool);
            } catch (RuntimeException | Error e) {
                throw new AssertionError("seed " + seed + ", " + mode + ", " + ranks, e);
            }
        }

        void act(Side p, Side d) {
            switch (random.nextInt(12)) {
                case 0, 1, 2, 3 -> {
                    int which = random.nextInt(PROMPTS);
                    var transfer = "x" + transfers++;
                    boolean known = random.nextBoolean();
                    int order = random.nextInt(5); // 4: one side only
                    if (order < 4 || random.nextBoolean()) {
                        if (order % 2 == 0) {
                            prefill(p, which, transfer, known);
                        }
                        decode(d, which, transfer);
                    }
                    if (order == 4 || order % 2 == 1) {
                        prefill(p, which, transfer, known);
                    }
                }
                case 4 -> p.mayAbort(random);
                case 5 -> d.mayAbort(random);
                case 6 -> {
                    if (random.nextInt(3) == 0) {
                        (random.nextBoolean() ? p : d).mayKill(random);
                    }
                }
                case 7 -> LockSupport.parkNanos(random.nextInt(3) * 1_000_000L);
                default -> {
                    // only step
                }
            }
        }

        void prefill(Side p, int which, String transfer, boolean known) {
            var handle = P2pEngines.prefill(p.engine, prompt(which), transfer, known ? dPort : 0);
            p.submitted.add(new Submitted(handle, which, false));
        }

        void decode(Side d, int which, String transfer) {
            var params =
                    Map.<String, Object>of(
                            "do_remote_prefill",
                            true,
                            "transfer_id",
                            transfer,
                            "prefill_addr",
                            "127.0.0.1:" + pPort);
            var request =
                    GenerationRequest.of(
                                    prompt(which),
                                    SamplingParams.greedy(1 + random.nextInt(TOKENS)))
                            .withFailurePolicy(policy)
                            .withKvParams(new TransferParams(params));
            d.submitted.add(new Submitted(d.engine.submit(request), which, false));
        }

        void finish(Side p, Side d, StagingPool pool) {
            var limit = Deadline.in(Duration.ofSeconds(50));
            while (!(p.done() && d.done() && pool.available() == pool.capacity())) {
                assertThat(limit.passed())
                        .as("p %s, d %s, pool %s", p.engine.stats(), d.engine.stats(), pool)
                        .isFalse();
                boolean worked = p.engine.step() | d.engine.step();
                if (!worked) {
                    LockSupport.parkNanos(200_000);
                }
            }
            handedOver = d.engine.stats().kvConnector().counters().getOrDefault("p2p_receives", 0L);
            failed = d.engine.stats().kvConnector().counters().getOrDefault("p2p_loads_failed", 0L);
            for (var side : List.of(p, d)) {
                side.engine.step();
                side.engine.checkInvariants();
                assertThat(side.engine.stats().health()).isEmpty();
                side.submitted.forEach(each -> check(side, each));
            }
        }

        void check(Side side, Submitted each) {
            switch (each.handle.await(Deadline.in(Duration.ZERO)).orElseThrow()) {
                case Outcome.Finished(var reason, var tokens, _, _, _) -> {
                    assertThat(Arrays.stream(tokens).boxed().toList())
                            .as("tokens of prompt %d", each.prompt)
                            .isEqualTo(expected.get(each.prompt).subList(0, tokens.length));
                    assertThat(reason == FinishReason.ABORT).isIn(each.aborted, false);
                }
                case Outcome.Failed(var failure, _) ->
                        assertThat(side.killed || policy == LoadFailurePolicy.FAIL)
                                .as("%s", failure)
                                .isTrue();
            }
        }
    }
}
