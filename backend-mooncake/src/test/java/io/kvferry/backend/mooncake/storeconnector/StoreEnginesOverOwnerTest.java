// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.remote.OwnerChild;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.LookupResult;

import org.junit.jupiter.api.Test;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// Engines whose store is in a process of its own, which is killed. Their synthetic model verifies
/// every byte that it did not write itself.
class StoreEnginesOverOwnerTest {
    private static final int TOKENS = 150;
    private static final int PREFIX = TOKENS / 16 * 16;
    private static final long BYTES = 32 << 20;
    private static final Duration SOON = Duration.ofSeconds(55);

    private static Engine engine(String id, int tp, String store) {
        return Engine.open(
                        config(tp)
                                .kvConnector(
                                        new MooncakeStoreConnectorProvider(),
                                        ConnectorConfig.of(
                                                MooncakeStoreConnectorProvider.NAME,
                                                KvRole.BOTH,
                                                id,
                                                Map.of("store", store))))
                .start();
    }

    private static EngineConfig config(int tp) {
        return EngineConfig.of(
                        new SyntheticProvider(), Path.of("."), Map.of("kv_heads", 4L, "groups", 2L))
                .worldSize(tp)
                .blockCount(256)
                .stepTokens(64)
                .prefixCache(false)
                .closeLimit(Duration.ofSeconds(2));
    }

    private static int[] prompt(int seed) {
        var prompt = new int[TOKENS];
        for (int i = 0; i < TOKENS; i++) {
            prompt[i] = 300 + (seed * 7919 + i * 31) % 20_000;
        }
        return prompt;
    }

    private static RequestHandle submit(Engine engine, int seed) {
        return engine.submit(
                GenerationRequest.of(prompt(seed), SamplingParams.greedy(8))
                        .withFailurePolicy(LoadFailurePolicy.RECOMPUTE));
    }

    private static Outcome.Finished finished(RequestHandle handle) {
        var outcome = handle.await(Deadline.in(SOON));
        assertThat(outcome).as(handle.id()).isPresent();
        assertThat(outcome.get()).isInstanceOf(Outcome.Finished.class);
        return (Outcome.Finished) outcome.get();
    }

    private static int loaded(Outcome outcome) {
        return outcome.usage().external().stream().mapToInt(LookupResult.Share::tokens).sum();
    }

    private static void awaitNothingHeld(Engine engine) {
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

    @Test
    void aSecondLifeOfAnEngineReadsWhatTheFirstOneStored() throws Exception {
        try (var owner = new OwnerChild(0, BYTES);
                var alone = Engine.open(config(1)).start()) {
            for (int life = 0; life < 2; life++) {
                try (var engine = engine("life", 2, owner.address())) {
                    for (int seed = 0; seed < 3; seed++) {
                        var expected = finished(submit(alone, seed)).tokens();
                        var limit = Deadline.in(SOON);
                        var outcome = finished(submit(engine, seed));
                        // A lookup or save that a busy machine held up for seconds is a miss once.
                        while (life == 1 && loaded(outcome) < PREFIX && !limit.passed()) {
                            assertThat(outcome.tokens()).isEqualTo(expected);
                            awaitNothingHeld(engine);
                            outcome = finished(submit(engine, seed));
                        }
                        assertThat(outcome.tokens()).isEqualTo(expected);
                        assertThat(loaded(outcome)).isEqualTo(life == 0 ? 0 : PREFIX);
                    }
                    awaitNothingHeld(engine);
                }
            }
        }
    }

    /// Hits end with the owner and come back with its next life; no request notices more than that.
    @Test
    void anOwnerThatIsKilledUnderLoadCostsHitsAndNothingElse() throws Exception {
        int port = freePort();
        var owner = new OwnerChild(port, BYTES);
        try (var first = engine("first", 1, owner.address());
                var second = engine("second", 1, owner.address());
                var alone = Engine.open(config(1)).start()) {
            for (int round = 0; round < 2; round++) {
                var handles = new ArrayList<RequestHandle>();
                for (int i = 0; i < 40; i++) {
                    handles.add(submit(i % 2 == 0 ? first : second, i / 4));
                    if (i == 20) {
                        finished(handles.getFirst()); // so that something is under way
                        owner.kill();
                    }
                }
                for (int i = 0; i < 40; i++) {
                    assertThat(finished(handles.get(i)).tokens())
                            .isEqualTo(finished(submit(alone, i / 4)).tokens());
                }
                assertThat(first.stats().health()).isEmpty();
                owner = new OwnerChild(port, BYTES);
                awaitHits(first, second, 1000 * (round + 1));
                awaitNothingHeld(first);
                awaitNothingHeld(second);
            }
        } finally {
            owner.close();
        }
    }

    /// Until one engine loads what the other has stored.
    private static void awaitHits(Engine first, Engine second, int seed) {
        var limit = Deadline.in(SOON);
        for (int next = seed; ; next++) {
            finished(submit(first, next));
            awaitNothingHeld(first);
            if (loaded(finished(submit(second, next))) == PREFIX) {
                return;
            }
            assertThat(limit.passed()).as("the store is not used again").isFalse();
            LockSupport.parkNanos(50_000_000);
        }
    }
}
