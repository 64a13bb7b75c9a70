// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.Outcome;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.tck.faults.FaultPlan;
import io.kvferry.tck.faults.FaultPlan.Fault;
import io.kvferry.tck.faults.FaultyConnector;
import io.kvferry.tck.memory.MemoryConnectorProvider;
import io.kvferry.tck.memory.MemoryStore;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.IntStream;

/// The additional contract of a connector that consists of others, on top of [KvConnectorContract].
///
/// Whatever the faulty children do, the sound child works and every request ends with the right
/// tokens. Each such test builds `[faulty, sound, composite[faulty]]`, where the faulty children
/// only fail, all in the same way. Calls and answers between the engine and a child reach only that
/// child.
public abstract class KvCompositeContract extends KvCompositeChildTests {
    private static final long SEED = Long.getLong("kvferry.tck.seed", 20_261_122L);

    /// Of a load, and of a lease.
    private static final Duration LOAD_LIMIT = Duration.ofSeconds(1);

    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final int BLOCKS = 6;
    private static final int BLOCK_TOKENS = 4;
    private static final int[] PROMPT =
            IntStream.range(0, BLOCKS * BLOCK_TOKENS + 2).map(i -> 300 + 7 * i).toArray();

    private final List<MemoryStore> faultyStores = new ArrayList<>();
    private final List<MemoryStore> soundStore = new ArrayList<>();
    private final FaultPlan faults = FaultPlan.seeded(SEED);

    /// A child: its plugin and its options.
    public record Child(KvConnectorProvider provider, Map<String, Object> options) {}

    private Child child(KvConnectorProvider provider, List<MemoryStore> listed) {
        var name = "composite-" + UUID.randomUUID();
        listed.add(store(name));
        return new Child(
                provider,
                Map.of("store", name, "save", "lease", "lease", LOAD_LIMIT.toSeconds() + "s"));
    }

    /// Serves a prompt that every child has, and then one that only the sound child has.
    private void servesBetweenChildrenThat(Fault fault) {
        var sound = new MemoryConnectorProvider();
        var first = FaultyConnector.wrap("FirstFaultyConnector", sound, faults);
        var last = FaultyConnector.wrap("LastFaultyConnector", sound, faults);
        var options =
                options(
                        List.of(
                                child(first, faultyStores),
                                child(sound, soundStore),
                                new Child(
                                        composite(), options(List.of(child(last, faultyStores))))));
        var engines = new VerifiedEngines(LOAD_LIMIT, PATIENCE, host(List.of(first, last)));
        var expected = engines.baseline(PROMPT);
        try (var engine =
                engines.open(
                                composite(),
                                KvRole.BOTH,
                                options,
                                "engine",
                                LoadFailurePolicy.RECOMPUTE)
                        .start()) {
            storeInEach(engines, engine, expected);

            faults.with(fault, 1);
            assertThat(serve(engines, engine, expected).usage().external())
                    .as("who delivered: not those who promised and failed")
                    .noneMatch(share -> share.source().contains("Faulty"));
            assertThat(faults.struck(fault)).as("faults").isPositive();

            assertThat(deliveredBySoundChild(engines, engine, expected))
                    .as("tokens that the sound child delivered")
                    .isEqualTo(BLOCKS * BLOCK_TOKENS);
            assertThat(engine.stats().health()).isEmpty();
        }
    }

    /// Serves the prompt, and every child has it; again if that took so long that a lease may have
    /// been over before its blocks were stored.
    private void storeInEach(VerifiedEngines engines, Engine engine, int[] expected) {
        var limit = Deadline.in(PATIENCE);
        long begin;
        do {
            faultyStores.forEach(MemoryStore::clear);
            soundStore.forEach(MemoryStore::clear);
            begin = System.nanoTime();
            serve(engines, engine, expected);
        } while (!isStoredInEach() && isLate(begin) && !limit.passed());
        assertThat(faultyStores)
                .as("stores of the faulty children")
                .allMatch(store -> store.blocks() > 0);
        assertThat(soundStore)
                .as("store of the sound child")
                .allMatch(store -> store.blocks() >= BLOCKS);
    }

    private boolean isStoredInEach() {
        return faultyStores.stream().allMatch(store -> store.blocks() > 0)
                && soundStore.stream().allMatch(store -> store.blocks() >= BLOCKS);
    }

    /// Serves a prompt that only the sound child has; again if the request took so long that its
    /// load may have been taken back.
    private long deliveredBySoundChild(VerifiedEngines engines, Engine engine, int[] expected) {
        var limit = Deadline.in(PATIENCE);
        while (true) {
            faultyStores.forEach(MemoryStore::clear);
            long before = delivered(engine);
            long begin = System.nanoTime();
            answer(engines, engine, expected);
            boolean late = isLate(begin);
            engines.awaitAllFree(engine);
            long delivered = delivered(engine) - before;
            if (delivered == BLOCKS * BLOCK_TOKENS || !late || limit.passed()) {
                return delivered;
            }
        }
    }

    private static boolean isLate(long begin) {
        return System.nanoTime() - begin >= LOAD_LIMIT.toNanos();
    }

    private static Outcome.Finished serve(VerifiedEngines engines, Engine engine, int[] expected) {
        var finished = answer(engines, engine, expected);
        engines.awaitAllFree(engine);
        return finished;
    }

    private static Outcome.Finished answer(VerifiedEngines engines, Engine engine, int[] expected) {
        var request = VerifiedEngines.request(PROMPT, TransferParams.EMPTY);
        var outcome = engines.run(engine, request);
        assertThat(outcome).isInstanceOf(Outcome.Finished.class);
        var finished = (Outcome.Finished) outcome;
        assertThat(finished.tokens()).isEqualTo(expected);
        return finished;
    }

    private static long delivered(Engine engine) {
        return engine.stats().counters().getOrDefault("external_delivered_tokens", 0L);
    }

    @Test
    @DisplayName("I54a a child between children that throw at every call does its work")
    void childrenThatThrowAreAlone() {
        servesBetweenChildrenThat(Fault.THROW);
    }

    @Test
    @DisplayName("I54b a child between children that fail every load does its work")
    void childrenThatFailAreAlone() {
        servesBetweenChildrenThat(Fault.FAIL);
    }

    @Test
    @DisplayName("I54c a child between children that end nothing before they must does its work")
    void childrenThatHangAreAlone() {
        servesBetweenChildrenThat(Fault.HANG);
    }

    @Test
    @DisplayName("I54d a child between children that throw Errors does its work")
    void childrenThatThrowErrorsAreAlone() {
        servesBetweenChildrenThat(Fault.ERROR);
    }

    @Test
    @DisplayName("I54e a child between children that answer null does its work")
    void childrenThatAnswerNullAreAlone() {
        servesBetweenChildrenThat(Fault.NULL);
    }

    @Test
    @DisplayName("I54f a child between children that answer illegal hits does its work")
    void childrenThatAnswerIllegalHitsAreAlone() {
        servesBetweenChildrenThat(Fault.ILLEGAL_HIT);
    }
}
