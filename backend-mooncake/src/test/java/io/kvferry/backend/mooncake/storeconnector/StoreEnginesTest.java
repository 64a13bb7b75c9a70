// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.backend.mooncake.EngineRuns.SOON;
import static io.kvferry.backend.mooncake.EngineRuns.alone;
import static io.kvferry.backend.mooncake.EngineRuns.assertNothingHeld;
import static io.kvferry.backend.mooncake.EngineRuns.finished;
import static io.kvferry.backend.mooncake.EngineRuns.loaded;
import static io.kvferry.backend.mooncake.EngineRuns.prompt;
import static io.kvferry.backend.mooncake.EngineRuns.submit;
import static io.kvferry.backend.mooncake.storeconnector.StoreRuns.TOKENS;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStores;
import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.observe.CacheEvent;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.LockSupport;

/// Whole engines that share a store of this JVM. Their synthetic model verifies every byte that it
/// did not write itself.
class StoreEnginesTest {
    private final String name = "engines-" + UUID.randomUUID();

    @AfterEach
    void closeStore() {
        EmbeddedStores.closeNow(name);
    }

    private Engine engine(
            KvRole role, String id, int tp, Map<String, Object> model, Map<String, Object> more) {
        return opened(role, id, tp, model, more).start();
    }

    private Engine opened(
            KvRole role, String id, int tp, Map<String, Object> model, Map<String, Object> more) {
        var options = new HashMap<String, Object>(more);
        options.putIfAbsent("store_name", name);
        options.putIfAbsent("global_segment_size", 32 << 20);
        return StoreRuns.opened(role, id, tp, model, options);
    }

    private EmbeddedStore store() {
        return EmbeddedStores.find(name).orElseThrow();
    }

    @ParameterizedTest
    @CsvSource({"1,1", "2,1", "1,2", "4,2"})
    void whatOneEngineComputedAnotherLoads(int tp, int groups) {
        var model = Map.<String, Object>of("groups", (long) groups);
        try (var first = engine(KvRole.BOTH, "first", tp, model, Map.of());
                var second = engine(KvRole.BOTH, "second", tp, model, Map.of());
                var alone = alone(model)) {
            for (int i = 0; i < 6; i++) {
                finished(submit(first, prompt(i, TOKENS + i)));
            }
            assertNothingHeld(first); // so that every save is over
            var handles = new ArrayList<RequestHandle>();
            for (int i = 0; i < 6; i++) {
                handles.add(submit(second, prompt(i, TOKENS + i)));
            }
            for (int i = 0; i < 6; i++) {
                var outcome = finished(handles.get(i));
                assertThat(outcome.tokens())
                        .isEqualTo(finished(submit(alone, prompt(i, TOKENS + i))).tokens());
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo((TOKENS + i) / 16 * 16);
            }
            assertNothingHeld(second);
            assertThat(store().usage().busy()).isZero();
        }
    }

    @Test
    void aSecondLifeOfAnEngineFindsTheFirstOnes() {
        try (var alone = alone(Map.of())) {
            var expected = finished(submit(alone, prompt(1, TOKENS))).tokens();
            for (int life = 0; life < 3; life++) {
                try (var engine = engine(KvRole.BOTH, "life", 1, Map.of(), Map.of())) {
                    var outcome = finished(submit(engine, prompt(1, TOKENS)));
                    assertThat(outcome.tokens()).isEqualTo(expected);
                    assertThat(loaded(outcome)).isEqualTo(life == 0 ? 0 : TOKENS / 16 * 16);
                    assertNothingHeld(engine);
                }
            }
        }
    }

    @Test
    void rolesAndTenantsHold() {
        try (var producer = engine(KvRole.PRODUCER, "p", 1, Map.of(), Map.of());
                var consumer = engine(KvRole.CONSUMER, "c", 1, Map.of(), Map.of());
                var other = engine(KvRole.BOTH, "o", 1, Map.of(), Map.of("tenant_id", "another"))) {
            finished(submit(consumer, prompt(1, TOKENS)));
            assertNothingHeld(consumer);
            assertThat(store().keyCount()).as("a consumer saves nothing").isZero();
            finished(submit(producer, prompt(1, TOKENS)));
            assertNothingHeld(producer);
            assertThat(store().keyCount()).isPositive();
            assertThat(loaded(finished(submit(producer, prompt(1, TOKENS)))))
                    .as("a producer loads nothing")
                    .isZero();
            assertThat(loaded(finished(submit(other, prompt(1, TOKENS))))).isZero();
            assertThat(loaded(finished(submit(consumer, prompt(1, TOKENS))))).isPositive();
        }
    }

    @Test
    void answersAreStoredWhereAskedFor() {
        var saving = Map.<String, Object>of("save_decode_cache", true);
        try (var first = engine(KvRole.BOTH, "first", 1, Map.of(), saving);
                var second = engine(KvRole.BOTH, "second", 1, Map.of(), saving)) {
            var prompt = prompt(3, 16);
            var answer =
                    finished(first.submit(GenerationRequest.of(prompt, SamplingParams.greedy(40))))
                            .tokens();
            assertNothingHeld(first);
            int[] longer = Arrays.copyOf(prompt, 16 + answer.length);
            System.arraycopy(answer, 0, longer, 16, answer.length);
            assertThat(loaded(finished(submit(second, longer))))
                    .isGreaterThanOrEqualTo((longer.length - 1) / 16 * 16);
        }
    }

    /// The store holds a small part of what is saved, and evicts all the time.
    @Test
    void aStoreThatIsMuchTooSmallCostsHitsAndNothingElse() {
        var small =
                Map.<String, Object>of(
                        "global_segment_size",
                        1_500_000,
                        "kv_lease_ttl",
                        "5ms",
                        "eviction_high_watermark",
                        0.5);
        try (var first = engine(KvRole.BOTH, "first", 2, Map.of(), small);
                var second = engine(KvRole.BOTH, "second", 2, Map.of(), small);
                var alone = alone(Map.of())) {
            var handles = new ArrayList<RequestHandle>();
            for (int i = 0; i < 60; i++) {
                handles.add(submit(i % 2 == 0 ? first : second, prompt(i / 6, TOKENS + i / 6)));
            }
            for (int i = 0; i < 60; i++) {
                assertThat(finished(handles.get(i)).tokens())
                        .isEqualTo(finished(submit(alone, prompt(i / 6, TOKENS + i / 6))).tokens());
            }
            assertNothingHeld(first);
            assertNothingHeld(second);
            assertThat(store().counters().get("master_evicted_key_count")).isPositive();
            assertThat(first.stats().health()).isEmpty();
        }
    }

    @Test
    void servingGoesOnWithoutTheStore() {
        try (var engine = engine(KvRole.BOTH, "e", 1, Map.of(), Map.of());
                var alone = alone(Map.of())) {
            finished(submit(engine, prompt(1, TOKENS)));
            assertNothingHeld(engine);
            EmbeddedStores.closeNow(name);
            var outcome = finished(submit(engine, prompt(1, TOKENS)));
            assertThat(outcome.tokens())
                    .isEqualTo(finished(submit(alone, prompt(1, TOKENS))).tokens());
            assertThat(loaded(outcome)).isZero();
            assertNothingHeld(engine);
            assertThat(engine.stats().health()).isEmpty();
        }
    }

    @Test
    void whatIsStoredIsAnnounced() {
        List<CacheEvent> events = new CopyOnWriteArrayList<>();
        try (var engine = opened(KvRole.BOTH, "e", 2, Map.of(), Map.of())) {
            engine.onCacheEvent(events::add);
            engine.start();
            finished(submit(engine, prompt(1, TOKENS)));
            assertNothingHeld(engine);
            var limit = Deadline.in(SOON);
            while (announced(events) < TOKENS / 16) {
                assertThat(limit.passed()).as("%s", events).isFalse();
                LockSupport.parkNanos(1_000_000);
            }
            assertThat(announced(events)).isEqualTo(TOKENS / 16);
        }
    }

    private static long announced(List<CacheEvent> events) {
        return events.stream()
                .filter(CacheEvent.Stored.class::isInstance)
                .map(CacheEvent.Stored.class::cast)
                .filter(event -> !event.source().equals("engine"))
                .mapToLong(event -> event.blocks().size())
                .sum();
    }
}
