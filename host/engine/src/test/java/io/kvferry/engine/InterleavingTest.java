// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.config;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.testkit.ScriptedKv;
import io.kvferry.engine.testkit.ScriptedKv.OnLoad;
import io.kvferry.spi.Deadline;
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
import java.util.stream.IntStream;

/// Random requests, aborts, failures, delays and silences over a pool that is too small: whatever
/// the order, tokens are right, every request gets an outcome, and every block comes back.
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

    private record Submitted(RequestHandle handle, int prompt, boolean aborted) {}

    private static void check(long seed) {
        var random = new Random(seed);
        var kv = new ScriptedKv(new ConcurrentHashMap<>());
        var policy = random.nextBoolean() ? LoadFailurePolicy.FAIL : LoadFailurePolicy.RECOMPUTE;
        var submitted = new ArrayList<Submitted>();
        try (var engine =
                Engine.open(
                        config(Map.of("verify", "all", "layers", 1, "head_dim", 8))
                                .blockCount(BLOCKS)
                                .stepTokens(4 + random.nextInt(30))
                                .maxRunning(1 + random.nextInt(5))
                                .worldSize(1 + random.nextInt(2))
                                .prefixCache(random.nextBoolean())
                                .loadLimit(Duration.ofMillis(2))
                                .holdLimit(Duration.ofMillis(5))
                                .revokeLimit(Duration.ofMillis(5))
                                .pendingLookupLimit(Duration.ofMillis(2))
                                .closeLimit(Duration.ofMillis(1))
                                .kvConnector(kv, kv.config(policy)))) {
            for (int i = 0; i < 60; i++) {
                act(random, kv, engine, submitted);
                engine.step();
                engine.checkInvariants();
            }
            finish(seed, kv, engine, submitted);
        }
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

    private static void finish(long seed, ScriptedKv kv, Engine engine, List<Submitted> submitted) {
        var limit = Deadline.in(Duration.ofSeconds(20));
        boolean done = false;
        while (!done && !limit.passed()) {
            engine.step();
            done =
                    engine.stats().freeBlocks() == BLOCKS
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
        assertThat(stats.counter("holds_started"))
                .as("seed %s", seed)
                .isEqualTo(stats.counter("holds_completed"));
        assertThat(stats.counter("connector_defects")).as("seed %s", seed).isZero();
        assertThat(kv.calls.stream().filter(c -> c.startsWith("onRequest")).count())
                .as("seed %s: one finish per request", seed)
                .isEqualTo(kv.calls.stream().filter(c -> c.startsWith("finish")).count());
        for (var each : submitted) {
            checkOutcome(seed, each);
        }
    }

    private static void checkOutcome(long seed, Submitted each) {
        switch (each.handle.await(Deadline.in(Duration.ZERO)).orElseThrow()) {
            case Outcome.Finished(var reason, var tokens, _, _, _) -> {
                assertThat(tokens)
                        .as("seed %s: tokens of prompt %s", seed, each.prompt)
                        .isEqualTo(Arrays.copyOf(EXPECTED.get(each.prompt), tokens.length));
                assertThat(reason == FinishReason.ABORT)
                        .as("seed %s", seed)
                        .isIn(each.aborted, false);
            }
            case Outcome.Failed(var failure, _) ->
                    assertThat(failure.message())
                            .as("seed %s", seed)
                            .containsAnyOf("scripted failure", "was revoked");
        }
    }
}
