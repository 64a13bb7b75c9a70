// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.LookupResult;

import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// Whole engines with the synthetic model, which verifies every byte that it did not write itself,
/// and what tests ask of them.
public final class EngineRuns {
    /// In which everything that a test waits for must have happened.
    public static final Duration SOON = Duration.ofSeconds(100);

    public static final int GENERATED = 8;

    private EngineRuns() {}

    /// An engine without a connector and without a prefix cache.
    public static EngineConfig config(int tp, Map<String, Object> model) {
        var all = new HashMap<String, Object>(model);
        all.putIfAbsent("kv_heads", 4L);
        return EngineConfig.of(new SyntheticProvider(), Path.of("."), all)
                .worldSize(tp)
                .blockCount(256)
                .stepTokens(64)
                .prefixCache(false)
                .closeLimit(Duration.ofSeconds(2));
    }

    /// A running engine that computes everything itself.
    public static Engine alone(Map<String, Object> model) {
        return Engine.open(config(1, model)).start();
    }

    public static int[] prompt(int seed, int tokens) {
        var prompt = new int[tokens];
        for (int i = 0; i < tokens; i++) {
            prompt[i] = 300 + (seed * 7919 + i * 31) % 20_000;
        }
        return prompt;
    }

    /// A request that computes what it cannot load.
    public static RequestHandle submit(Engine engine, int[] prompt) {
        return engine.submit(
                GenerationRequest.of(prompt, SamplingParams.greedy(GENERATED))
                        .withFailurePolicy(LoadFailurePolicy.RECOMPUTE));
    }

    public static Outcome.Finished finished(RequestHandle handle) {
        var outcome = handle.await(Deadline.in(SOON));
        assertThat(outcome).as(handle.id()).isPresent();
        assertThat(outcome.get()).isInstanceOf(Outcome.Finished.class);
        return (Outcome.Finished) outcome.get();
    }

    /// Tokens whose blocks were loaded.
    public static int loaded(Outcome outcome) {
        return outcome.usage().external().stream().mapToInt(LookupResult.Share::tokens).sum();
    }

    /// Waits until no block is in use, and says so when some stay.
    public static void assertNothingHeld(Engine engine) {
        var limit = Deadline.in(SOON);
        for (var now = engine.stats();
                now.freeBlocks() < now.totalBlocks()
                        || now.held() > 0
                        || now.leasedBlocks() > 0
                        || now.quarantinedBlocks() > 0;
                now = engine.stats()) {
            assertThat(limit.passed()).as("blocks stay in use: %s", now).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }
}
