// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.EngineStats;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.Workers;
import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.worker.process.ThreadWorkers;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.composite.ChaosScene.Rivalry;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.observe.EventSink;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/// One engine of [CompositeInterleavingTest], what it is asked, and what must be so at the end.
final class ChaosRun {
    private static final int BLOCKS = 24;

    /// As many as the longest sequence needs.
    private static final int FEWEST_BLOCKS = 15;

    /// Small requests at once that come and go while others wait.
    private static final int FLOOD = 6;

    /// Rows of the largest two items of a request.
    private static final int REQUEST_ROWS = 12;

    /// Threads that submit while an engine is closed, and how long their submissions take at most.
    private static final int CLIENTS = 3;

    private static final int LATE_NANOS = 8_000_000;

    /// Steps between two looks at the engine's figures.
    private static final int LOOK = 32;

    /// Far longer than any limit of the engine's.
    private static final Duration STALL = Duration.ofSeconds(2);

    /// Until all requests have ended, also while a child is off, which takes a minute at most.
    private static final Duration ENDED = Duration.ofSeconds(120);

    /// How long an engine is left alone that has nothing to do at once.
    private static final long REST_NANOS = 300_000;

    /// A stop string that no answer has.
    private static final String NEVER = "\u0001 never \u0001";

    /// Children that were off and on again, over all seeds.
    private static final AtomicLong REOPENED = new AtomicLong();

    /// Children that were off before they were closed, over all seeds.
    private static final AtomicLong HUNG = new AtomicLong();

    private record Submitted(RequestHandle handle, int prompt, boolean content, boolean late) {}

    /// Where the worker halves run.
    enum Where {
        /// The ranks run in the engine's process.
        ENGINE,
        /// They run behind the transport of worker processes, in threads that can be killed.
        THREADS,
        /// They run in child JVMs.
        PROCESSES
    }

    private static Workers workers(Where where, ThreadWorkers threads, long seed) {
        return switch (where) {
            case ENGINE -> new Workers.InProcess();
            case THREADS -> new Workers.Launched(threads, "");
            case PROCESSES ->
                    new Workers.ChildProcesses(
                            List.of("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                            Long.toString(seed));
        };
    }

    /// Over after a time in which an engine has also had its steps: on a machine that is busy with
    /// something else, seconds may pass with hardly any.
    private static final class Patience {
        private static final int STEPS = 2000;

        private final Deadline limit;
        private int steps;

        Patience(Duration limit) {
            this.limit = Deadline.in(limit);
        }

        boolean isOver() {
            return ++steps > STEPS && limit.passed();
        }
    }

    private final ChaosScene scene;
    private final Where where;
    private final ThreadWorkers threads;
    private final Engine engine;
    private final List<Submitted> submitted = new ArrayList<>();
    private final boolean encodeOnly;
    private final int rows;
    private final boolean flooded;
    private final boolean smallItems;
    private int floods;

    private final List<RequestHandle> flood = new ArrayList<>();
    private int kills;

    private ChaosRun(
            ChaosScene scene,
            Where where,
            ThreadWorkers threads,
            Engine engine,
            boolean encodeOnly,
            int rows) {
        this.encodeOnly = encodeOnly;
        this.rows = rows;
        boolean drawn = !encodeOnly && where != Where.PROCESSES && scene.newer(3) == 1;
        this.smallItems = !encodeOnly && scene.rivalry == Rivalry.SMALL_ITEMS;
        this.flooded = drawn || smallItems;
        this.scene = scene;
        this.where = where;
        this.threads = threads;
        this.engine = engine;
    }

    /// Small requests come as fast as they go, until those that were there before have ended.
    private void mayFlood() {
        flood.removeIf(handle -> handle.await(Deadline.in(Duration.ZERO)).isPresent());
        while (flooded && flood.size() < FLOOD && open() > 0) {
            var request =
                    smallItems
                            ? ChaosReference.small(floods++)
                            : ChaosReference.request(0, 1, true);
            flood.add(engine.submit(request.withPriority(scene.leastUrgent())));
        }
    }

    /// An engine that only encodes refuses at once what will never fit.
    private void submit(GenerationRequest request, int prompt, boolean content) {
        int needed = request.items().stream().mapToInt(EncoderInput::embeddings).sum();
        try {
            submitted.add(new Submitted(engine.submit(request), prompt, content, false));
            assertThat(encodeOnly && needed > rows).isFalse();
        } catch (KvFerryException e) {
            assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST);
            assertThat(encodeOnly && needed > rows).isTrue();
        }
    }

    /// Kills a worker now and then, seldom one that is just starting.
    private void mayKill() {
        var random = scene.random;
        if (random.nextInt(3) > 0
                || (!engine.stats().degraded().isEmpty() && random.nextInt(20) > 0)) {
            return;
        }
        switch (where) {
            case ENGINE -> {}
            case THREADS -> {
                var running = threads.running();
                if (!running.isEmpty()) {
                    running.get(random.nextInt(running.size())).kill();
                    kills++;
                }
            }
            case PROCESSES -> {
                var running = ProcessHandle.current().children().toList();
                if (!running.isEmpty()) {
                    running.get(random.nextInt(running.size())).destroyForcibly();
                    kills++;
                }
            }
        }
        if (kills > 0 && random.nextBoolean()) {
            engine.step();
            awaitWorkers();
        }
    }

    /// Half of the time requests come and go while workers start.
    private void awaitWorkers() {
        var limit = new Patience(Duration.ofSeconds(60));
        while (!engine.stats().degraded().isEmpty() && !limit.isOver()) {
            step();
        }
    }

    /// An engine that waits for its limits leaves the processor to other seeds.
    private void step() {
        if (!engine.step()) {
            LockSupport.parkNanos(REST_NANOS);
        }
    }

    /// How many children were off and on again, over all seeds.
    static long reopened() {
        return REOPENED.get();
    }

    /// How many children hung in their close, over all seeds.
    static long hung() {
        return HUNG.get();
    }

    static void check(long seed) {
        check(seed, new Random(seed * 7919).nextBoolean() ? Where.ENGINE : Where.THREADS);
    }

    /// Throws when anything was wrong.
    static void check(long seed, Where where) {
        var scene = new ChaosScene(seed, where == Where.PROCESSES);
        var random = scene.random;
        int ranks = 1 << random.nextInt(where == Where.PROCESSES ? 2 : 3);
        boolean encodeOnly = random.nextInt(8) == 0;
        int drawnRows =
                ChaosReference.ITEM_ROWS
                        + random.nextInt(REQUEST_ROWS + 1 - ChaosReference.ITEM_ROWS);
        int rows = scene.scarceRows() ? ChaosReference.ITEM_ROWS : drawnRows;
        var policy =
                random.nextBoolean() && !scene.bare
                        ? LoadFailurePolicy.FAIL
                        : LoadFailurePolicy.RECOMPUTE;
        int slower = where == Where.PROCESSES ? 10 : 1;
        try (var kvferry = Kvferry.open(scene.catalog(), EventSink.NONE)) {
            var model =
                    new FlakyModel(
                            random.nextLong(), random.nextInt(3) == 0 && where != Where.PROCESSES);
            var threads =
                    new ThreadWorkers(_ -> new ChaosWorkerHost(model, kvferry.services(), scene));
            var config =
                    EngineConfig.of(model, Path.of(""), ChaosReference.MODEL)
                            .host(kvferry.services())
                            .workers(workers(where, threads, seed))
                            .workerRestarts(1000, Duration.ofMinutes(10))
                            .connectorPause(Duration.ofMillis(10))
                            .blockTokens(ChaosReference.BLOCK_TOKENS)
                            .blockCount(
                                    scene.crowded || scene.bare
                                            ? FEWEST_BLOCKS
                                            : BLOCKS - scene.newer(BLOCKS - FEWEST_BLOCKS + 1))
                            .encoder(rows, 1 + random.nextInt(rows))
                            .encodeOnly(encodeOnly)
                            .stepTokens(4 + random.nextInt(scene.crowded ? 4 : 30))
                            .maxRunning(
                                    scene.crowded
                                            ? 2
                                            : scene.rivalry == Rivalry.SMALL_ITEMS
                                                    ? 1 + FLOOD
                                                    : 1 + random.nextInt(5))
                            .worldSize(ranks)
                            .prefixCache(random.nextBoolean())
                            .loadLimit(Duration.ofMillis(2 * slower))
                            .holdLimit(Duration.ofMillis(5 * slower))
                            .holdPatience(Duration.ofMillis(10 * slower))
                            .revokeLimit(Duration.ofMillis(5 * slower))
                            .pendingLookupLimit(Duration.ofMillis(2 * slower))
                            .closeLimit(Duration.ofMillis(1));
            var ec =
                    ChaosReference.config(
                            "MultiConnector", LoadFailurePolicy.FAIL, scene.ecOptions);
            config = config.ecConnector(new MultiEcConnectorProvider(), ec);
            if (!encodeOnly) {
                var leaf = scene.leaves.getFirst();
                config =
                        scene.bare
                                ? config.kvConnector(
                                        leaf, ChaosReference.config(leaf.name(), policy, Map.of()))
                                : config.kvConnector(
                                        new MultiConnectorProvider(),
                                        ChaosReference.config(
                                                "MultiConnector", policy, scene.kvOptions));
            }
            try (var engine = Engine.open(config)) {
                var run = new ChaosRun(scene, where, threads, engine, encodeOnly, rows);
                for (int i = 0; i < 60; i++) {
                    run.act();
                    engine.step();
                    engine.checkInvariants();
                }
                model.calm();
                run.finish();
                if (where != Where.PROCESSES && scene.latest(4) == 1) {
                    run.closeUnderSubmissions(model);
                }
            }
            for (var leaf : scene.leaves) {
                assertThat(leaf.ambiguous).as("ids that %s was given twice", leaf.name()).isEmpty();
            }
            if (where != Where.PROCESSES) {
                assertThat(scene.itemLoads.needless()).as("loads of what is there").isEmpty();
                checkStores(scene, ranks);
            }
        } catch (RuntimeException | AssertionError e) {
            throw new AssertionError("seed " + seed, e);
        }
    }

    private void act() {
        var random = scene.random;
        switch (random.nextInt(7)) {
            case 0, 1 -> {
                int prompt = random.nextInt(ChaosReference.PROMPTS);
                boolean content = random.nextInt(8) > 0;
                var request =
                        ChaosReference.request(
                                prompt, 1 + random.nextInt(ChaosReference.TOKENS), content);
                submit(request.withPriority(scene.priority()), prompt, content);
            }
            case 2 -> {
                if (!submitted.isEmpty()) {
                    submitted.get(random.nextInt(submitted.size())).handle.abort();
                }
            }
            case 3, 4 -> scene.leaves.get(random.nextInt(scene.leaves.size())).unsettle();
            case 5 -> scene.items.get(random.nextInt(scene.items.size())).unsettle();
            default -> mayKill();
        }
    }

    private void finish() {
        endAll();
        // Those that never answer a revocation keep blocks out of use for ever, as they should.
        for (var leaf : scene.leaves) {
            leaf.answer();
        }
        for (var leaf : scene.items) {
            leaf.answer();
        }
        // A child that broke again and again is off for as long as the run took, a minute at most.
        var limit = new Patience(ENDED);
        boolean done = false;
        while (!done && !limit.isOver()) {
            mayFlood();
            engine.checkInvariants();
            step();
            done = flood.isEmpty() && isQuiet(engine.stats());
        }
        engine.step();
        engine.checkInvariants();
        var stats = engine.stats();
        var state = stats + "\n" + engine.describe();
        assertThat(stats.freeBlocks()).as("free blocks, %s", state).isEqualTo(stats.totalBlocks());
        assertThat(stats.encoderFree()).as("free rows, %s", state).isEqualTo(rows);
        assertThat(stats.held()).as("held, %s", state).isZero();
        assertThat(stats.leasedBlocks()).isZero();
        assertThat(stats.health() + stats.degraded()).isEmpty();
        if (!scene.bare) {
            assertThat(stats.counters().getOrDefault("connector_defects", 0L))
                    .as("%s", stats)
                    .isZero();
        }
        for (var figures : List.of(stats.kvConnector(), stats.ecConnector())) {
            figures.counters()
                    .forEach((name, value) -> {
                        if (name.endsWith("/multi_reopened")) {
                            REOPENED.addAndGet(value);
                        } else if (name.endsWith("/multi_unclosed")) {
                            HUNG.addAndGet(value);
                        }
                    });
        }
        var expected = encodeOnly ? List.<int[]>of() : ChaosReference.of(1).tokens();
        for (var each : submitted) {
            checkOutcome(each, expected, kills > 0);
        }
    }

    /// Every request ends although children never answer: no load, lookup, block, item or row is
    /// waited for forever, and a stream of small requests does not starve others.
    private void endAll() {
        var limit = new Patience(ENDED);
        var patience = new Patience(STALL);
        long open = open();
        for (int steps = 1; open > 0; steps++) {
            mayFlood();
            engine.checkInvariants();
            step();
            boolean over = patience.isOver() || limit.isOver();
            long still = open();
            if (still < open) {
                open = still;
                patience = new Patience(STALL);
            }
            if (steps % LOOK > 0 && !over) {
                continue; // figures are much dearer than a step
            }
            var stats = engine.stats();
            if (!stats.degraded().isEmpty()) {
                patience = new Patience(STALL);
            }
            if (patience.isOver() || limit.isOver()) {
                throw new AssertionError(open + " requests wait, " + stats + engine.describe());
            }
        }
    }

    private long open() {
        return submitted.stream()
                .filter(each -> each.handle.await(Deadline.in(Duration.ZERO)).isEmpty())
                .count();
    }

    private boolean isQuiet(EngineStats stats) {
        return stats.degraded().isEmpty()
                && stats.freeBlocks() == stats.totalBlocks()
                && stats.held() == 0
                && stats.encoderFree() == rows;
    }

    /// Clients continue while the engine is closed, some in the middle of a submission: each is
    /// refused or gets an outcome.
    private void closeUnderSubmissions(FlakyModel model) {
        model.whenSubmitting(
                () -> LockSupport.parkNanos(ThreadLocalRandom.current().nextInt(LATE_NANOS)));
        var late = Collections.synchronizedList(new ArrayList<Submitted>());
        var clients = new ArrayList<Thread>();
        for (int i = 0; i < CLIENTS; i++) {
            int prompt = encodeOnly ? 0 : scene.latest(ChaosReference.PROMPTS);
            clients.add(Thread.ofPlatform().start(() -> submitUntilRefused(prompt, late)));
        }
        for (int steps = scene.latest(20); steps > 0; steps--) {
            engine.step();
            engine.checkInvariants();
        }
        engine.close();
        var limit = Deadline.in(Duration.ofSeconds(20));
        var expected = encodeOnly ? List.<int[]>of() : ChaosReference.of(1).tokens();
        try {
            for (var client : clients) {
                client.join(Math.max(1, limit.remainingNanos() / 1_000_000));
                assertThat(client.isAlive()).as("a client that waits").isFalse();
            }
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
        for (var each : late) {
            assertThat(each.handle.await(limit)).as("outcome of a late request").isPresent();
            checkOutcome(each, expected, kills > 0);
        }
    }

    private void submitUntilRefused(int prompt, List<Submitted> late) {
        var sampling = SamplingParams.greedy(ChaosReference.TOKENS).withStop(List.of(NEVER));
        var code = ErrorCode.BACKPRESSURE;
        while (code == ErrorCode.BACKPRESSURE) {
            try {
                var handle = engine.submit(ChaosReference.request(prompt, sampling, true));
                late.add(new Submitted(handle, prompt, true, true));
            } catch (KvFerryException e) {
                code = e.code();
            }
        }
    }

    private static void checkOutcome(Submitted each, List<int[]> expected, boolean killed) {
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
                            case PEER_LOST -> killed;
                            case CLOSED -> each.late;
                            case INTERNAL ->
                                    failure.message().contains("injected")
                                            || failure.message().contains("refused a load")
                                            || failure.message()
                                                    .contains("made no plan for a load");
                            default -> false;
                        };
                assertThat(expectedCode).as("%s", failure).isTrue();
                assertThat(failure.message().contains("encoder") && each.prompt == 0)
                        .as("a request without items: %s", failure)
                        .isFalse();
                assertThat(failure.code() == ErrorCode.MISS && each.content)
                        .as("an item that could be encoded: %s", failure)
                        .isFalse();
            }
        }
    }

    private static void checkStores(ChaosScene scene, int ranks) {
        var expected = ChaosReference.of(ranks).blocks();
        for (var leaf : scene.leaves) {
            leaf.store.forEach((key, bytes) ->
                    assertThat(bytes)
                            .as("block %s of %s", key, leaf.name())
                            .isEqualTo(expected.get(key)));
        }
    }
}
