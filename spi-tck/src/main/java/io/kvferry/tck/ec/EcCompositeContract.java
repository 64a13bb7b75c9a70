// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.ec;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.tck.faults.FaultPlan;
import io.kvferry.tck.faults.FaultPlan.Fault;
import io.kvferry.tck.faults.FaultyEcConnector;
import io.kvferry.tck.memory.MemoryEcProvider;
import io.kvferry.tck.memory.MemoryStore;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.IntStream;

/// The additional contract of an encoder-cache connector that consists of others, on top of
/// [EcConnectorContract].
///
/// Whatever the faulty children do, the sound child works and every request ends with the right
/// tokens. Each such test builds `[faulty, sound, composite[faulty]]`, where the faulty children
/// only fail, all in the same way. Calls and answers between the engine and a child reach only that
/// child.
public abstract class EcCompositeContract extends EcCompositeChildTests {
    private static final long SEED = Long.getLong("kvferry.tck.seed", 20_261_122L);

    /// Of a load, and of a hold.
    private static final Duration LOAD_LIMIT = Duration.ofSeconds(1);

    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final int ROWS = 6;
    private static final int[] PROMPT = IntStream.range(0, 20).map(i -> 300 + 7 * i).toArray();

    private final List<MemoryStore> faultyStores = new ArrayList<>();
    private final List<MemoryStore> soundStore = new ArrayList<>();
    private final FaultPlan faults = FaultPlan.seeded(SEED);

    /// A child: its plugin and its options.
    public record Child(EcConnectorProvider provider, Map<String, Object> options) {}

    private Child child(EcConnectorProvider provider, List<MemoryStore> listed) {
        var name = "ec-composite-" + UUID.randomUUID();
        listed.add(store(name));
        var lease = LOAD_LIMIT.toSeconds() + "s";
        return new Child(provider, Map.of("store", name, "hand_off", "hold", "lease", lease));
    }

    private static EngineConfig bare() {
        return EngineConfig.of(
                        new SyntheticProvider(),
                        Path.of(""),
                        Map.of("verify", "all", "embedding_width", 24))
                .blockTokens(4)
                .blockCount(256)
                .prefixCache(false)
                .worldSize(2)
                .encoder(64, 64)
                .loadLimit(LOAD_LIMIT)
                .holdLimit(LOAD_LIMIT)
                .revokeLimit(LOAD_LIMIT)
                .closeLimit(Duration.ofSeconds(1));
    }

    private static int[] tokens(Engine engine, String hash) {
        var item = new EncoderInput(hash, "image", 4, ROWS, hash.getBytes(StandardCharsets.UTF_8));
        var request =
                GenerationRequest.of(PROMPT, SamplingParams.greedy(5)).withItems(List.of(item));
        var outcome =
                engine.submit(request)
                        .await(Deadline.in(PATIENCE))
                        .orElseThrow(() ->
                                new AssertionError(
                                        "no outcome within " + PATIENCE + "; " + engine.stats()));
        assertThat(outcome).isInstanceOf(Outcome.Finished.class);
        return ((Outcome.Finished) outcome).tokens();
    }

    /// Drops what the engine's own cache has, so that the item is asked for again.
    private static void forget(Engine engine) {
        var end = Deadline.in(PATIENCE);
        while (engine.stats().encoderFree() < 64) {
            assertThat(end.passed()).as("rows that stay taken; %s", engine.stats()).isFalse();
            Thread.onSpinWait();
        }
        assertThat(engine.resetCaches(Deadline.in(PATIENCE), false)).isTrue();
    }

    /// Serves an item that every child has, and then one that only the sound child has.
    private void servesBetweenChildrenThat(Fault fault) {
        var sound = new MemoryEcProvider();
        var first = FaultyEcConnector.wrap("FirstFaultyEcConnector", sound, faults);
        var last = FaultyEcConnector.wrap("LastFaultyEcConnector", sound, faults);
        var options =
                options(
                        List.of(
                                child(first, faultyStores),
                                child(sound, soundStore),
                                new Child(
                                        composite(), options(List.of(child(last, faultyStores))))));
        int[] expected;
        try (var engine = Engine.open(bare()).start()) {
            expected = tokens(engine, "baseline");
        }
        var host = host(List.of(first, last));
        var config = ConnectorConfig.of(composite().name(), KvRole.BOTH, "engine", options);
        try (var engine = Engine.open(bare().ecConnector(composite(), config).host(host)).start()) {
            storeInEach(engine, expected);

            faults.with(fault, 1);
            forget(engine);
            assertThat(tokens(engine, "of all")).isEqualTo(expected);
            assertThat(faults.struck(fault)).as("faults").isPositive();

            assertThat(loadedFromSoundChild(engine, expected))
                    .as("items that the sound child delivered")
                    .isEqualTo(1);
            assertThat(engine.stats().health()).isEmpty();
        }
    }

    /// Serves the item, and every child has it; again if that took so long that a hold may have
    /// been over before the item was stored.
    private void storeInEach(Engine engine, int[] expected) {
        var limit = Deadline.in(PATIENCE);
        long begin;
        boolean stored;
        do {
            faultyStores.forEach(MemoryStore::clear);
            soundStore.forEach(MemoryStore::clear);
            forget(engine);
            begin = System.nanoTime();
            assertThat(tokens(engine, "of all")).isEqualTo(expected);
            stored = isStoredIn(faultyStores) && isStoredIn(soundStore);
        } while (!stored && isLate(begin) && !limit.passed());
        assertThat(isStoredIn(faultyStores)).as("stores of the faulty children").isTrue();
        assertThat(isStoredIn(soundStore)).as("store of the sound child").isTrue();
    }

    private static boolean isStoredIn(List<MemoryStore> stores) {
        return stores.stream().allMatch(store -> store.items() > 0);
    }

    /// Serves an item that only the sound child has; again if the request took so long that its
    /// load may have been taken back.
    private long loadedFromSoundChild(Engine engine, int[] expected) {
        var limit = Deadline.in(PATIENCE);
        while (true) {
            faultyStores.forEach(MemoryStore::clear);
            forget(engine);
            long before = loaded(engine);
            long begin = System.nanoTime();
            assertThat(tokens(engine, "of all")).isEqualTo(expected);
            boolean late = isLate(begin);
            long loaded = loaded(engine) - before;
            if (loaded == 1 || !late || limit.passed()) {
                return loaded;
            }
        }
    }

    private static boolean isLate(long begin) {
        return System.nanoTime() - begin >= LOAD_LIMIT.toNanos();
    }

    private static long loaded(Engine engine) {
        return engine.stats().counters().getOrDefault("items_loaded", 0L);
    }

    @Test
    @DisplayName("J1 a child between children that throw at every call does its work")
    void childrenThatThrowAreAlone() {
        servesBetweenChildrenThat(Fault.THROW);
    }

    @Test
    @DisplayName("J2 a child between children that fail every load does its work")
    void childrenThatFailAreAlone() {
        servesBetweenChildrenThat(Fault.FAIL);
    }

    @Test
    @DisplayName("J3 a child between children that end nothing before they must does its work")
    void childrenThatHangAreAlone() {
        servesBetweenChildrenThat(Fault.HANG);
    }

    @Test
    @DisplayName("J4 a child between children that throw Errors does its work")
    void childrenThatThrowErrorsAreAlone() {
        servesBetweenChildrenThat(Fault.ERROR);
    }

    @Test
    @DisplayName("J5 a child between children that answer null does its work")
    void childrenThatAnswerNullAreAlone() {
        servesBetweenChildrenThat(Fault.NULL);
    }

    @Test
    @DisplayName("J6 a child between children that answer illegal hits does its work")
    void childrenThatAnswerIllegalHitsAreAlone() {
        servesBetweenChildrenThat(Fault.ILLEGAL_HIT);
    }
}
