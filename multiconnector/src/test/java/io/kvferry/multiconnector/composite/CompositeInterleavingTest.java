// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.observe.EventSink;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;

/// Random requests with and without encoder items, aborts and model failures, on engines of several
/// ranks over random trees of composites whose leaves behave at random: whatever the order, tokens
/// and stored blocks are right, every request gets an outcome, and every block and every row comes
/// back.
class CompositeInterleavingTest {
    private static final int BLOCKS = 24;

    /// Rows of the largest item, and of the largest two of a request.
    private static final int ITEM_ROWS = 7;

    private static final int REQUEST_ROWS = 12;
    private static final int PROMPTS = 6;
    private static final int TOKENS = 24;
    private static final int BLOCK_TOKENS = 4;
    private static final Map<String, Object> MODEL =
            Map.of(
                    "verify",
                    "all",
                    "layers",
                    1,
                    "kv_heads",
                    4,
                    "head_dim",
                    4,
                    "embedding_width",
                    4);
    private static final Map<Integer, Reference> REFERENCES = new HashMap<>();

    /// What an engine with room for everything computes.
    ///
    /// @param blocks every block by [ChaosKv#key]
    private record Reference(List<int[]> tokens, Map<String, byte[]> blocks) {}

    private static synchronized Reference reference(int ranks) {
        return REFERENCES.computeIfAbsent(ranks, CompositeInterleavingTest::compute);
    }

    private static Reference compute(int ranks) {
        var all = new ChaosKv("all", 0, true);
        var config =
                EngineConfig.of(new SyntheticProvider(), Path.of(""), MODEL)
                        .blockTokens(BLOCK_TOKENS)
                        .blockCount(1024)
                        .worldSize(ranks)
                        .encoder(1000, 1000)
                        .kvConnector(all, config(all.name(), LoadFailurePolicy.FAIL, Map.of()));
        try (var engine = Engine.open(config)) {
            var tokens =
                    IntStream.range(0, PROMPTS)
                            .mapToObj(i -> {
                                var handle = engine.submit(request(i, TOKENS, true));
                                while (handle.await(Deadline.in(Duration.ZERO)).isEmpty()) {
                                    engine.step();
                                }
                                return ((Outcome.Finished)
                                                handle.await(Deadline.in(Duration.ZERO))
                                                        .orElseThrow())
                                        .tokens();
                            })
                            .toList();
            engine.step();
            return new Reference(tokens, Map.copyOf(all.store));
        }
    }

    private static ConnectorConfig config(
            String name, LoadFailurePolicy policy, Map<String, Object> options) {
        return new ConnectorConfig(
                name, KvRole.BOTH, "e", "cpu", 0, -1, 1, "127.0.0.1", 1, policy, options);
    }

    /// Pairs of prompts share a prefix; all but one have items.
    private static GenerationRequest request(int i, int tokens, boolean withContent) {
        var random = new Random(i / 2);
        var prompt = IntStream.range(0, 18 + 3 * i).map(_ -> 1 + random.nextInt(30_000)).toArray();
        prompt[prompt.length - 1] = 1 + i;
        var items = new ArrayList<EncoderInput>();
        if (i > 0) {
            items.add(item("a" + i / 2, 2, 5, withContent));
            items.add(item("b" + i % 4, 9, 4 + i % 4, withContent));
        }
        return GenerationRequest.of(prompt, SamplingParams.greedy(tokens)).withItems(items);
    }

    private static EncoderInput item(String hash, int position, int rows, boolean withContent) {
        return new EncoderInput(
                hash + "-" + rows,
                "image",
                position,
                rows,
                withContent ? hash.getBytes(StandardCharsets.UTF_8) : new byte[0]);
    }

    @Test
    void keepsItsInvariantsInAFewHundredInterleavings() {
        for (long seed = 0; seed < 200; seed++) {
            check(seed);
        }
    }

    @Test
    @Tag("soak")
    @Timeout(14_400) // so many seeds take longer than a test usually may
    void keepsItsInvariantsInManyThousandInterleavings() {
        for (long seed = 1000; seed < 21_000; seed++) {
            check(seed);
        }
    }

    private record Submitted(RequestHandle handle, int prompt, boolean content) {}

    /// One engine, its connectors and what it was asked.
    private static final class Scene {
        final long seed;
        final Random random;
        final List<ChaosKv> leaves = new ArrayList<>();
        final List<ChaosEc> items = new ArrayList<>();
        final List<Submitted> submitted = new ArrayList<>();
        int nested;

        Scene(long seed) {
            this.seed = seed;
            this.random = new Random(seed);
        }

        /// A composite of leaves and composites.
        Map<String, Object> kv(int depth) {
            var children = new ArrayList<Map<String, Object>>();
            int count = 1 + random.nextInt(3);
            for (int i = 0; i < count; i++) {
                if (depth > 0 && random.nextInt(3) == 0) {
                    children.add(
                            Map.of(
                                    "kv_connector",
                                    "MultiConnector",
                                    "name",
                                    "nested" + nested++,
                                    "kv_connector_extra_config",
                                    kv(depth - 1)));
                } else {
                    var leaf = new ChaosKv("K" + leaves.size(), random.nextLong());
                    leaves.add(leaf);
                    children.add(Map.of("kv_connector", leaf.name()));
                }
            }
            var policies = LoadPolicy.values();
            return Map.of(
                    "load_policy",
                    policies[random.nextInt(policies.length)]
                            .name()
                            .toLowerCase(Locale.ROOT)
                            .replace('_', '-'),
                    "connectors",
                    children);
        }

        Map<String, Object> ec() {
            var children = new ArrayList<Map<String, Object>>();
            int count = 1 + random.nextInt(2);
            for (int i = 0; i < count; i++) {
                var leaf = new ChaosEc("E" + i, random.nextLong());
                items.add(leaf);
                children.add(Map.of("ec_connector", leaf.name()));
            }
            return Map.of("connectors", children);
        }
    }

    private static void check(long seed) {
        var scene = new Scene(seed);
        var random = scene.random;
        var kvOptions = scene.kv(2);
        var ecOptions = scene.ec();
        var catalog = PluginCatalog.ofClassPath();
        for (var leaf : scene.leaves) {
            catalog = catalog.with(KvConnectorProvider.class, leaf);
        }
        for (var leaf : scene.items) {
            catalog = catalog.with(EcConnectorProvider.class, leaf);
        }
        int ranks = 1 << random.nextInt(3);
        boolean encodeOnly = random.nextInt(8) == 0;
        int rows = encodeOnly ? REQUEST_ROWS : ITEM_ROWS + random.nextInt(REQUEST_ROWS - ITEM_ROWS);
        var policy = random.nextBoolean() ? LoadFailurePolicy.FAIL : LoadFailurePolicy.RECOMPUTE;
        try (var kvferry = Kvferry.open(catalog, EventSink.NONE)) {
            var model = new FlakyModel(random.nextLong(), random.nextInt(3) == 0);
            var config =
                    EngineConfig.of(model, Path.of(""), MODEL)
                            .host(kvferry.services())
                            .blockTokens(BLOCK_TOKENS)
                            .blockCount(BLOCKS)
                            .encoder(rows, 1 + random.nextInt(rows))
                            .encodeOnly(encodeOnly)
                            .stepTokens(4 + random.nextInt(30))
                            .maxRunning(1 + random.nextInt(5))
                            .worldSize(ranks)
                            .prefixCache(random.nextBoolean())
                            .loadLimit(Duration.ofMillis(2))
                            .holdLimit(Duration.ofMillis(5))
                            .revokeLimit(Duration.ofMillis(5))
                            .pendingLookupLimit(Duration.ofMillis(2))
                            .closeLimit(Duration.ofMillis(1));
            var ec = config("MultiConnector", LoadFailurePolicy.FAIL, ecOptions);
            config = config.ecConnector(new MultiEcConnectorProvider(), ec);
            if (!encodeOnly) {
                var kv = config("MultiConnector", policy, kvOptions);
                config = config.kvConnector(new MultiConnectorProvider(), kv);
            }
            try (var engine = Engine.open(config)) {
                for (int i = 0; i < 60; i++) {
                    act(scene, engine);
                    engine.step();
                    engine.checkInvariants();
                }
                model.calm();
                finish(scene, engine, encodeOnly, rows);
            }
            checkStores(scene, ranks);
        } catch (RuntimeException | AssertionError e) {
            throw new AssertionError("seed " + seed, e);
        }
    }

    private static void act(Scene scene, Engine engine) {
        var random = scene.random;
        switch (random.nextInt(7)) {
            case 0, 1 -> {
                int prompt = random.nextInt(PROMPTS);
                boolean content = random.nextInt(8) > 0;
                var request = request(prompt, 1 + random.nextInt(TOKENS), content);
                scene.submitted.add(new Submitted(engine.submit(request), prompt, content));
            }
            case 2 -> {
                if (!scene.submitted.isEmpty()) {
                    scene.submitted.get(random.nextInt(scene.submitted.size())).handle.abort();
                }
            }
            case 3, 4 -> scene.leaves.get(random.nextInt(scene.leaves.size())).unsettle();
            case 5 -> scene.items.get(random.nextInt(scene.items.size())).unsettle();
            default -> {
                // only step
            }
        }
    }

    private static void finish(Scene scene, Engine engine, boolean encodeOnly, int rows) {
        // Those that never answer a revocation keep blocks out of use for ever, as they should.
        for (var leaf : scene.leaves) {
            leaf.answer();
        }
        for (var leaf : scene.items) {
            leaf.answer();
        }
        var limit = Deadline.in(Duration.ofSeconds(30));
        boolean done = false;
        while (!done && !limit.passed()) {
            engine.step();
            var stats = engine.stats();
            done =
                    stats.freeBlocks() == stats.totalBlocks()
                            && stats.held() == 0
                            && stats.encoderFree() == rows
                            && scene.submitted.stream()
                                    .allMatch(each ->
                                            each.handle
                                                    .await(Deadline.in(Duration.ZERO))
                                                    .isPresent());
        }
        engine.step();
        engine.checkInvariants();
        var stats = engine.stats();
        assertThat(stats.freeBlocks()).as("free blocks, %s", stats).isEqualTo(stats.totalBlocks());
        assertThat(stats.encoderFree()).as("free rows, %s", stats).isEqualTo(rows);
        assertThat(stats.held()).as("held, %s", stats).isZero();
        assertThat(stats.leasedBlocks()).isZero();
        assertThat(stats.health()).isEmpty();
        assertThat(stats.counter("connector_defects")).as("%s", stats).isZero();
        var expected = encodeOnly ? List.<int[]>of() : reference(1).tokens();
        for (var each : scene.submitted) {
            checkOutcome(each, expected);
        }
    }

    private static void checkOutcome(Submitted each, List<int[]> expected) {
        var outcome = each.handle.await(Deadline.in(Duration.ZERO));
        assertThat(outcome).as("outcome of prompt %s", each.prompt).isPresent();
        switch (outcome.orElseThrow()) {
            case Outcome.Finished(_, var tokens, _, _, _) -> {
                if (!expected.isEmpty()) {
                    assertThat(tokens)
                            .as("tokens of prompt %s", each.prompt)
                            .isEqualTo(Arrays.copyOf(expected.get(each.prompt), tokens.length));
                }
            }
            case Outcome.Failed(var failure, _) -> {
                boolean expectedCode =
                        switch (failure.code()) {
                            case TIMEOUT, STORAGE_IO, CANCELLED, MISS -> true;
                            case INTERNAL ->
                                    failure.message().contains("injected")
                                            || failure.message().contains("refused a load");
                            default -> false;
                        };
                assertThat(expectedCode).as("%s", failure).isTrue();
                assertThat(failure.code() == ErrorCode.MISS && each.content)
                        .as("an item that could be encoded: %s", failure)
                        .isFalse();
            }
        }
    }

    private static void checkStores(Scene scene, int ranks) {
        var expected = reference(ranks).blocks();
        for (var leaf : scene.leaves) {
            leaf.store.forEach((key, bytes) ->
                    assertThat(bytes)
                            .as("block %s of %s", key, leaf.name())
                            .isEqualTo(expected.get(key)));
        }
    }
}
