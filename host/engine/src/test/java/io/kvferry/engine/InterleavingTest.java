// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.config;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.testkit.KvWorkerHost;
import io.kvferry.engine.testkit.ScriptedEc;
import io.kvferry.engine.testkit.ScriptedKv;
import io.kvferry.engine.testkit.ScriptedKv.OnLoad;
import io.kvferry.engine.worker.process.ThreadWorkers;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult.LoadMode;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;

/// Random requests, aborts, failures, delays, silences, defects and deaths of workers over a pool
/// that is too small: whatever the order, tokens are right, every request gets an outcome, and
/// every block comes back.
class InterleavingTest {
    private static final int BLOCKS = 24;
    private static final int PROMPTS = 6;
    private static final int TOKENS = 24;
    private static final List<OnLoad> LOAD_OUTCOMES = List.of(OnLoad.values());
    private static final List<int[]> EXPECTED = expected();

    private static List<int[]> expected() {
        try (var engine = Engine.open(config(Map.of()).blockCount(1024))) {
            return IntStream.range(0, PROMPTS)
                    .mapToObj(i -> run(engine, request(promptOf(i), TOKENS)).tokens())
                    .toList();
        }
    }

    /// Pairs of prompts share a prefix.
    private static int[] promptOf(int i) {
        var prompt = prompt(i / 2, 18 + 3 * i);
        prompt[prompt.length - 1] = 1 + i;
        return prompt;
    }

    @Test
    void keepsItsInvariantsInAFewHundredInterleavings() {
        for (long seed = 0; seed < 300; seed++) {
            check(seed);
        }
    }

    @Test
    @Tag("soak")
    @Timeout(7200) // so many seeds take longer than a test usually may
    void keepsItsInvariantsInManyThousandInterleavings() {
        for (long seed = 1000; seed < 21_000; seed++) {
            check(seed);
        }
    }

    /// What happened to the connector and the workers, beyond what a healthy one does.
    private static final class Harm {
        final Random random;
        final ThreadWorkers workers;
        final boolean threads;
        boolean defects;
        boolean deaths;

        /// The seeds keep their course of events: what is new has a random of its own.
        Harm(long seed, ScriptedKv kv) {
            random = new Random(seed * 7919);
            var host = new KvWorkerHost(kv, new ScriptedEc(Map.of()));
            workers = new ThreadWorkers(_ -> host);
            threads = random.nextBoolean();
        }

        Workers where() {
            return threads ? new Workers.Launched(workers, "") : new Workers.InProcess();
        }

        void mayHappen(ScriptedKv kv) {
            var running = workers.running();
            switch (random.nextInt(40)) {
                case 0 -> {
                    defects = true;
                    kv.throwIn = List.of("beginStep", "endStep", "report").get(random.nextInt(3));
                }
                case 1 -> {
                    if (!running.isEmpty()) {
                        deaths = true;
                        running.get(random.nextInt(running.size())).kill();
                    }
                }
                default -> {
                    // nothing
                }
            }
        }
    }

    private record Submitted(RequestHandle handle, int prompt, boolean aborted) {}

    private static void check(long seed) {
        var random = new Random(seed);
        var kv = new ScriptedKv(new ConcurrentHashMap<>());
        var policy = random.nextBoolean() ? LoadFailurePolicy.FAIL : LoadFailurePolicy.RECOMPUTE;
        var submitted = new ArrayList<Submitted>();
        var harm = new Harm(seed, kv);
        try (var engine =
                Engine.open(
                        config(Map.of("verify", "all", "layers", 1, "head_dim", 8))
                                .blockCount(BLOCKS)
                                .stepTokens(4 + random.nextInt(30))
                                .maxRunning(1 + random.nextInt(5))
                                .worldSize(1 + random.nextInt(2))
                                .prefixCache(random.nextBoolean())
                                .workers(harm.where())
                                .workerRestarts(1000, Duration.ofMinutes(10))
                                .connectorPause(Duration.ofNanos(100_000))
                                .loadLimit(Duration.ofMillis(2))
                                .holdLimit(Duration.ofMillis(hasLongHolds(seed) ? 60 : 5))
                                .holdPatience(Duration.ofMillis(1))
                                .revokeLimit(Duration.ofMillis(5))
                                .pendingLookupLimit(Duration.ofMillis(2))
                                .closeLimit(Duration.ofMillis(1))
                                .kvConnector(kv, kv.config(policy)))) {
            for (int i = 0; i < 60; i++) {
                act(random, kv, engine, submitted);
                harm.mayHappen(kv);
                engine.step();
                engine.checkInvariants();
            }
            kv.throwIn = "";
            finish(seed, kv, engine, submitted, harm);
        }
    }

    /// Whether holds last for so long that many requests are refused for them.
    private static boolean hasLongHolds(long seed) {
        return seed % 4 == 3;
    }

    private static void act(
            Random random, ScriptedKv kv, Engine engine, List<Submitted> submitted) {
        switch (random.nextInt(8)) {
            case 0, 1 -> {
                int prompt = random.nextInt(PROMPTS);
                var handle = engine.submit(request(promptOf(prompt), 1 + random.nextInt(TOKENS)));
                submitted.add(new Submitted(handle, prompt, false));
            }
            case 2 -> {
                if (!submitted.isEmpty()) {
                    int victim = random.nextInt(submitted.size());
                    var old = submitted.get(victim);
                    old.handle.abort();
                    submitted.set(victim, new Submitted(old.handle, old.prompt, true));
                }
            }
            case 3 -> kv.mode = random.nextBoolean() ? LoadMode.SYNC : LoadMode.ASYNC;
            case 4 -> kv.onLoad = LOAD_OUTCOMES.get(random.nextInt(LOAD_OUTCOMES.size()));
            case 5 -> {
                kv.delay = random.nextInt(4);
                kv.delayPerRank = random.nextInt(3);
                kv.pendingLookups = random.nextInt(3);
                kv.reportTwice = random.nextBoolean();
            }
            case 6 -> {
                kv.hold = random.nextInt(3) == 0;
                kv.lease = !kv.hold && random.nextInt(3) == 0;
                kv.holdSteps = random.nextInt(5) - 1;
            }
            default -> {
                // only step
            }
        }
    }

    private static void finish(
            long seed, ScriptedKv kv, Engine engine, List<Submitted> submitted, Harm harm) {
        var limit = Deadline.in(Duration.ofSeconds(20));
        boolean done = false;
        while (!done && !limit.passed()) {
            if (!engine.step() && !engine.stats().degraded().isEmpty()) {
                LockSupport.parkNanos(50_000);
            }
            done =
                    engine.stats().freeBlocks() == BLOCKS
                            && engine.stats().degraded().isEmpty()
                            && submitted.stream()
                                    .allMatch(s ->
                                            s.handle.await(Deadline.in(Duration.ZERO)).isPresent());
        }
        engine.step();
        engine.checkInvariants();
        var stats = engine.stats();
        assertThat(stats.freeBlocks())
                .as("seed %s: free blocks, %s", seed, stats)
                .isEqualTo(BLOCKS);
        assertThat(stats.held()).as("seed %s", seed).isZero();
        assertThat(stats.leasedBlocks()).as("seed %s", seed).isZero();
        assertThat(stats.counters().getOrDefault("holds_started", 0L))
                .as("seed %s", seed)
                .isEqualTo(stats.counters().getOrDefault("holds_completed", 0L));
        assertThat(stats.health() + stats.degraded()).as("seed %s", seed).isEmpty();
        if (!harm.defects) {
            assertThat(stats.counters().getOrDefault("connector_defects", 0L))
                    .as("seed %s", seed)
                    .isZero();
        }
        if (!harm.defects && !harm.deaths) {
            assertThat(kv.calls.stream().filter(c -> c.startsWith("onRequest")).count())
                    .as("seed %s: one finish per request", seed)
                    .isEqualTo(kv.calls.stream().filter(c -> c.startsWith("finish")).count());
        }
        for (var each : submitted) {
            checkOutcome(seed, each, harm);
        }
    }

    private static void checkOutcome(long seed, Submitted each, Harm harm) {
        switch (each.handle.await(Deadline.in(Duration.ZERO)).orElseThrow()) {
            case Outcome.Finished(var reason, var tokens, _, _, _) -> {
                assertThat(tokens)
                        .as("seed %s: tokens of prompt %s", seed, each.prompt)
                        .isEqualTo(Arrays.copyOf(EXPECTED.get(each.prompt), tokens.length));
                assertThat(reason == FinishReason.ABORT)
                        .as("seed %s", seed)
                        .isIn(each.aborted, false);
            }
            case Outcome.Failed(var failure, _) -> {
                boolean lost = harm.deaths && failure.code() == ErrorCode.PEER_LOST;
                boolean off = harm.defects && failure.message().contains("scripted: ");
                boolean keptOut =
                        failure.code() == ErrorCode.BACKPRESSURE
                                && failure.message().startsWith("no room: ");
                if (!lost && !off && !keptOut) {
                    assertThat(failure.message())
                            .as("seed %s", seed)
                            .containsAnyOf("scripted failure", "was revoked");
                }
            }
        }
    }
}
