// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.tck.JsonShape;
import io.kvferry.tck.PluginChecks;
import io.kvferry.tck.faults.CallLog;
import io.kvferry.tck.faults.Recording;
import io.kvferry.tck.harness.ConnectorHarness;
import io.kvferry.tck.harness.HarnessRequest;
import io.kvferry.tck.harness.HarnessShape;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;

/// Groups F and G of [KvConnectorContract]: ranks, losing against another connector, life cycle,
/// observation.
abstract class KvLifecycleTests extends KvSaveTests {
    @Test
    @DisplayName("F37a ranks that report in different steps make one completion")
    void lateRanksMakeOneCompletion() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = new Pair(shape().withRanks(3));
        var tokens = prompt(37, 3, 2);
        var request = pair.want(tokens, pair.make(tokens));
        var hit = pair.awaitHit(request, 0);
        pair.consumer.delayReports(1);
        pair.consumer.allocate(request, 0, hit);
        for (int i = 0; i < 5; i++) {
            pair.consumer.step();
        }
        assertThat(whole(pair.consumer.ended())).as("ends while one rank is missing").isEmpty();
        pair.consumer.releaseReports();
        pair.awaitLoadStepping(request);
        pair.consumer.step();
        assertThat(whole(pair.consumer.ended())).hasSize(1);
        assertThat(request.loadFailure()).isEmpty();
        pair.consumer.finish(request, FinishReason.ABORT);
        pair.settle();
    }

    @Test
    @DisplayName(
            "F39 having lost to another connector is like having found nothing, and saving works all the same")
    void losingIsLikeFindingNothing() {
        var pair = pair();
        var tokens = prompt(39, 4, 2);
        var request =
                pair.producer.submit(
                        "loser", tokens, "", handsOff() ? producerParams() : TransferParams.EMPTY);
        pair.producer.lookup(request, 0);
        pair.producer.allocate(
                request,
                2 * shape().blockTokens(),
                LookupResult.MISS); // the winner's blocks are there
        pair.producer.prefill(request, 3);
        pair.producer.generate(request, 7);
        var params = JsonShape.copy(pair.producer.finish(request, FinishReason.LENGTH).params());
        pair.producer.step();
        if (loads()) {
            pair.fetch(tokens, params);
        }
        pair.settle();
    }

    @Test
    @DisplayName("F44a blocks whose load failed are not stored")
    void blocksOfFailedLoadsAreNotStored() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var tokens = prompt(44, 4, 3);
        var request = pair.want(tokens, pair.make(tokens));
        var hit = pair.awaitHit(request, 0);
        assumeTrue(
                damageStore() || pair.breakSource(),
                "nothing can be made to fail: override damageStore() or stopStore()");
        pair.consumer.allocate(request, 0, hit);
        if (request.state() == HarnessRequest.State.RUNNING) {
            pair.consumer.schedule(
                    request, 100); // computed on top of a broken prefix: must not be stored
        }
        pair.consumer.step();
        pair.consumer.awaitLoad(request, limit());
        pair.consumer.finish(request, FinishReason.ERROR);
        pair.consumer.settle(limit());
        var other = consumer(shape());
        var next = other.submit("next", tokens);
        var answer = other.lookupSettled(next, 0, limit());
        other.allocate(next, 0, answer);
        other.step();
        other.awaitLoad(
                next, limit()); // whatever is loaded must be right, and the harness compares it
        other.finish(next, FinishReason.ABORT);
        other.settle(limit());
    }

    @Test
    @DisplayName(
            "F44b what is computed in the step of a failed synchronous load, or after any failed load, is not stored")
    void blocksBehindAFailedLoadAreNotStored() {
        if (!loads() || !has(Feature.CONTENT_ADDRESSED) || handsOff()) {
            blocksOfFailedLoadsAreNotStored(); // nothing is found by what was computed elsewhere
            return;
        }
        var pair = pair();
        var whole = prompt(441, 7, 2);
        var prefix = Arrays.copyOf(whole, 3 * shape().blockTokens() + 1);
        pair.fetch(prefix, pair.make(prefix));
        var request = pair.consumer.submit("with a prefix that fails", whole);
        assumeTrue(damageStore(), "nothing at rest can be damaged: override damageStore()");
        var answer = pair.consumer.lookupSettled(request, 0, limit());
        if (!(answer instanceof LookupResult.Hit)) {
            pair.consumer.finish(request, FinishReason.ABORT); // it has noticed already
            pair.settle();
            return;
        }
        pair.consumer.allocate(request, 0, answer);
        if (request.state() == HarnessRequest.State.RUNNING) {
            pair.consumer.schedule(request, 100); // the other four blocks, in the step of the load
        }
        pair.consumer.step();
        pair.awaitLoadStepping(request);
        assertThat(request.loadFailure()).as("outcome of a load of damaged blocks").isPresent();
        pair.consumer.finish(request, FinishReason.ERROR);
        pair.consumer.settle(limit());
        var other = consumer(shape());
        var next = other.submit("next", whole);
        long end = System.nanoTime() + limit().toNanos();
        var found = LookupResult.MISS;
        // Sound again, block by block where the producer still has some listed as stored: then
        // whatever is stored behind it can be found.
        while (!(found instanceof LookupResult.Hit hit && hit.tokens() >= prefix.length - 1)) {
            assertThat(System.nanoTime()).as("the prefix is never found again").isLessThan(end);
            pair.make(prefix);
            found = other.lookupSettled(next, 0, limit());
        }
        other.allocate(next, 0, found);
        other.step();
        other.awaitLoad(next, limit()); // the harness compares what was loaded
        assertThat(next.loadFailure()).isEmpty();
        assertThat(next.loadedTokens()).isEqualTo(3 * shape().blockTokens());
        other.finish(next, FinishReason.ABORT);
        other.settle(limit());
        pair.settle();
    }

    @Test
    @DisplayName("G45a the halves are opened, bound, registered and closed in the documented order")
    void callsComeInTheDocumentedOrder() {
        var log = new CallLog();
        var harness =
                ConnectorHarness.open(
                        Recording.kv(provider(), log),
                        config(producerRole(), "recorded", optionsOfThisTest()),
                        fitting(shape().withRanks(2)),
                        host(),
                        1);
        try (harness) {
            var request = harness.submit("r", prompt(45, 2, 1));
            harness.admit(request);
            harness.prefill(request, 100);
            harness.finish(request, FinishReason.STOP);
            harness.settle(limit());
        }
        for (var worker : List.of("worker 0", "worker 1")) {
            var calls = log.methods(worker);
            assertThat(calls.getFirst())
                    .isEqualTo(has(Feature.PROVIDES_MEMORY) ? "provideMemory" : "registerRegions");
            assertThat(calls.indexOf("registerRegions")).isLessThan(calls.indexOf("beginStep"));
            assertThat(calls.getLast()).isEqualTo("close");
        }
        var calls =
                log.methods("scheduler").stream()
                        .map(call -> call.equals("settle") ? "onReport" : call);
        assertThat(calls)
                .containsSubsequence(
                        "onRequest",
                        "lookup",
                        "onAllocated",
                        "buildPlan",
                        "onReport",
                        "finish",
                        "close");
    }

    @Test
    @DisplayName(
            "H59 memory that a connector provides for the cache is zeroed whole pages, and stays until the engine frees it")
    void providedMemoryOutlivesTheHalf() {
        if (!has(Feature.PROVIDES_MEMORY)) {
            return; // then the engine never asks
        }
        var harness =
                ConnectorHarness.open(
                        provider(),
                        config(producerRole(), "provider", optionsOfThisTest()),
                        fitting(shape().withRanks(2)),
                        host(),
                        1);
        try (harness) { // which writes to all of it between the end of the halves and its own
            var request = harness.submit("r", prompt(59, 2, 1));
            harness.admit(request);
            harness.prefill(request, 100);
            harness.finish(request, FinishReason.STOP);
            harness.settle(limit());
            harness.closeHalves();
        }
    }

    final HarnessShape fitting(HarnessShape shape) {
        return capabilities().requiredLayout().map(shape::withLayout).orElse(shape);
    }

    @Test
    @DisplayName("G47 two engines in one JVM share no state")
    void enginesShareNoState() {
        var one = producer(shape());
        var other = producer(shape());
        var first = one.submit("same-id", prompt(470, 3, 1));
        var second = other.submit("same-id", prompt(471, 3, 1));
        one.allocate(first, 0, LookupResult.MISS);
        other.allocate(second, 0, LookupResult.MISS);
        one.prefill(first, 5);
        one.finish(first, FinishReason.STOP);
        one.settle(limit());
        one.close();
        other.prefill(second, 5);
        other.finish(second, FinishReason.STOP);
        other.settle(limit());
        assertThat(other.freeBlocks()).isEqualTo(shape().blocks());
        if (loads() && has(Feature.CONTENT_ADDRESSED) && has(Feature.SAVE)) {
            var pair = pair();
            for (int seed = 470; seed <= 471; seed++) {
                var tokens = prompt(seed, 3, 1);
                assertThat(pair.fetch(tokens, TransferParams.EMPTY))
                        .isEqualTo(3 * shape().blockTokens());
            }
        }
    }

    @Test
    @DisplayName("G48 after a reset everything is a miss")
    void resetMakesEverythingAMiss() {
        var pair = pair();
        if (!has(Feature.RESET) || !loads() || handsOff()) {
            return;
        }
        var tokens = prompt(48, 3, 1);
        pair.consumer.finish(pair.want(tokens, pair.make(tokens)), FinishReason.ABORT);
        assertThat(pair.reset()).isTrue();
        var request = pair.consumer.submit("after", tokens);
        assertThat(pair.consumer.lookupSettled(request, 0, limit()))
                .isInstanceOf(LookupResult.Miss.class);
        pair.consumer.finish(request, FinishReason.ABORT);
        pair.settle();
        assertThat(pair.fetch(tokens, pair.make(tokens)))
                .as("tokens loaded after a reset and a new save")
                .isPositive();
    }

    @Test
    @DisplayName(
            "G48b what is being saved during a reset is a miss afterwards, and what is there already at once")
    void resetMakesWhatIsBeingSavedAMiss() {
        var pair = pair();
        if (!has(Feature.RESET) || !loads() || handsOff()) {
            return;
        }
        var saved = prompt(149, 6, 1);
        pair.make(saved);
        pair.settle();
        var tokens = prompt(148, 6, 1);
        var running = pair.producer.submit("running", tokens);
        pair.producer.admit(running);
        pair.producer.schedule(running, tokens.length);
        pair.producer.step();
        var reset =
                pair.producer.scheduler().resetCache(Deadline.in(limit())).toCompletableFuture();
        var during = pair.producer.submit("during", saved);
        assertThat(pair.producer.lookup(during, 0))
                .as("a lookup while the reset is under way")
                .isNotInstanceOf(LookupResult.Hit.class);
        pair.producer.finish(during, FinishReason.ABORT);
        pair.producer.preempt(running); // as an engine does
        pair.producer.step();
        pair.producer.stepUntil("the end of the reset", limit(), reset::isDone);
        assertThat(reset.join()).isTrue();
        pair.producer.finish(running, FinishReason.ABORT);
        pair.settle();
        assertThat(announced(pair.producer))
                .as("announced blocks of what was being saved")
                .doesNotContainAnyElementsOf(running.hashes());
        var request = pair.consumer.submit("after", tokens);
        assertThat(pair.consumer.lookupSettled(request, 0, limit()))
                .isInstanceOf(LookupResult.Miss.class);
        pair.consumer.finish(request, FinishReason.ABORT);
        pair.settle();
    }

    @Test
    @DisplayName(
            "G49 figures are reported once, merge in any order, and have names fit for metrics")
    void figuresAreReportedOnce() {
        var pair = pair();
        var tokens = prompt(49, 3, 1);
        var params = pair.make(tokens);
        if (loads()) {
            pair.fetch(tokens, params);
        }
        pair.settle();
        var before = pair.consumer.stats();
        for (int i = 0; i < 3; i++) {
            pair.consumer.step();
        }
        assertThat(pair.consumer.stats().counters())
                .as("figures after idle steps")
                .isEqualTo(before.counters());
        var a = pair.producer.stats();
        var b = pair.consumer.stats();
        var c = Stats.counter("x", 3);
        assertThat(a.merge(b).merge(c)).isEqualTo(c.merge(b).merge(a));
        assertThat(a.counters().keySet())
                .allSatisfy(name -> assertThat(name).matches("[A-Za-z0-9_./:-]+"));
        var names = new ArrayList<String>(a.counters().keySet());
        names.addAll(a.gauges().keySet());
        names.addAll(a.distributions().keySet());
        assertThat(names)
                .as("a figure is a counter, a gauge or a distribution")
                .doesNotHaveDuplicates();
        assertThat(a.gauges().keySet())
                .allSatisfy(name -> assertThat(name).matches("[A-Za-z0-9_./:-]+"));
        assertThat(a.counters().values()).allSatisfy(value -> assertThat(value).isNotNegative());
    }

    @Test
    @DisplayName(
            "G50 a block is announced before it can be hit, and withdrawn when it is gone; unclaimed events never come")
    void eventsTellWhatCanBeLoaded() {
        var pair = pair();
        var tokens = prompt(50, 3, 1);
        pair.make(tokens);
        if (!has(Feature.EVENTS)) {
            pair.settleIfPossible();
            assertThat(pair.producer.events()).isEmpty();
            return;
        }
        var request = pair.consumer.submit("r", tokens);
        int blocks = 0;
        if (loads() && has(Feature.CONTENT_ADDRESSED) && has(Feature.SAVE)) {
            blocks = pair.awaitHit(request, 0).tokens() / shape().blockTokens();
        }
        pair.producer.step(); // which brings the events
        assertThat(stored(pair.producer)).containsAll(request.hashes().subList(0, blocks));
        pair.consumer.finish(request, FinishReason.ABORT);
        if (has(Feature.RESET)) {
            pair.reset();
            pair.producer.step();
            pair.producer.step();
            assertThat(announced(pair.producer))
                    .as("blocks still announced after a reset")
                    .isEmpty();
        }
        pair.settleIfPossible();
    }

    /// The stored blocks as a router knows them that hears all events.
    private static Set<BlockHash> announced(ConnectorHarness harness) {
        var announced = new HashSet<BlockHash>();
        harness.events()
                .forEach(event -> {
                    switch (event) {
                        case CacheEvent.Stored stored -> announced.addAll(stored.blocks());
                        case CacheEvent.Removed removed -> announced.removeAll(removed.blocks());
                        case CacheEvent.ItemsStored _, CacheEvent.ItemsRemoved _ -> {}
                        case CacheEvent.Cleared _ -> announced.clear();
                    }
                });
        return announced;
    }

    private static Set<BlockHash> stored(ConnectorHarness harness) {
        return harness.events().stream()
                .filter(CacheEvent.Stored.class::isInstance)
                .flatMap(event -> ((CacheEvent.Stored) event).blocks().stream())
                .collect(Collectors.toSet());
    }

    @Test
    @DisplayName("G51 what the connector can do is known without opening it")
    void capabilitiesAreStatic() {
        var provider = provider();
        assertThat(provider.name()).isNotBlank();
        assertThat(provider.description()).isNotBlank().doesNotContain("\n");
        assertThat(provider.spiVersions().accepts(SpiVersion.CURRENT)).isTrue();
        assertThat(provider.availability()).isNotNull();
        PluginChecks.diagnoses(provider);
        var claimed = capabilities();
        assertThat(claimed).isEqualTo(capabilities());
    }
}
