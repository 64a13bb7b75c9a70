// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.tck.JsonShape;
import io.kvferry.tck.faults.CallLog;
import io.kvferry.tck.faults.FaultPlan;
import io.kvferry.tck.faults.FaultPlan.Fault;
import io.kvferry.tck.faults.FaultyConnector;
import io.kvferry.tck.faults.Recording;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.List;
import java.util.concurrent.locks.LockSupport;

/// Those behaviours of [KvConnectorContract] that only show in an engine: the connector runs in
/// kvferry's own, under a model that verifies every byte of its cache.
abstract class KvEngineTests extends KvClaimTests {
    private static final int TRIES = 200;

    private VerifiedEngines engines() {
        return new VerifiedEngines(limit(), limit().plus(limit()), host());
    }

    /// Computes the prompt on the producer; what the consumer's request is to carry.
    private TransferParams make(Engine producer, int[] tokens) {
        var params = handsOff() ? producerParams() : TransferParams.EMPTY;
        var request = GenerationRequest.of(tokens, SamplingParams.greedy(1)).withKvParams(params);
        var outcome = engines().run(producer, request);
        assertThat(outcome).isInstanceOf(Outcome.Finished.class);
        return JsonShape.copy(((Outcome.Finished) outcome).kvParams());
    }

    /// Runs the prompt on two engines under a fault until the fault has struck a load.
    private Outcome runUnder(FaultPlan plan, Fault fault, LoadFailurePolicy policy, int[] tokens) {
        var engines = engines();
        var options = optionsOfThisTest();
        var faulty = FaultyConnector.wrap(provider(), plan);
        try (var producer =
                        engines.open(provider(), producerRole(), options, "engine-p", policy)
                                .start();
                var consumer =
                        engines.open(
                                        faulty,
                                        consumerRole(),
                                        consumerOptions(options),
                                        "engine-d",
                                        policy)
                                .start()) {
            for (int i = 0; i < TRIES; i++) {
                var outcome =
                        engines.run(
                                consumer,
                                VerifiedEngines.request(
                                        tokens,
                                        i == 0 || handsOff()
                                                ? make(producer, tokens)
                                                : TransferParams.EMPTY));
                if (plan.struck(fault) > 0) {
                    engines.awaitAllFree(consumer);
                    assertThat(consumer.stats().health()).isEmpty();
                    return outcome;
                }
                LockSupport.parkNanos(5_000_000); // a store may take a moment to make blocks known
            }
        }
        throw new AssertionError("no load in " + TRIES + " requests for " + plan);
    }

    @Test
    @DisplayName(
            "D28 a failed load ends the request under `fail`, and changes no token under `recompute`")
    void bothFailurePoliciesHold() {
        if (!loads()) {
            neverHits();
            return;
        }
        var tokens = prompt(28, 6, 2);
        var expected = engines().baseline(tokens);
        var recomputed =
                runUnder(
                        FaultPlan.seeded(28).with(Fault.FAIL, 1),
                        Fault.FAIL,
                        LoadFailurePolicy.RECOMPUTE,
                        tokens);
        assertThat(recomputed)
                .isInstanceOfSatisfying(
                        Outcome.Finished.class,
                        finished -> assertThat(finished.tokens()).isEqualTo(expected));
        var cut =
                runUnder(
                        FaultPlan.seeded(29).with(Fault.TRUNCATE, 1),
                        Fault.TRUNCATE,
                        LoadFailurePolicy.RECOMPUTE,
                        tokens);
        assertThat(cut)
                .isInstanceOfSatisfying(
                        Outcome.Finished.class,
                        finished -> assertThat(finished.tokens()).isEqualTo(expected));
        var failed =
                runUnder(
                        FaultPlan.seeded(30).with(Fault.FAIL, 1),
                        Fault.FAIL,
                        LoadFailurePolicy.FAIL,
                        tokens);
        assertThat(failed).isInstanceOf(Outcome.Failed.class);
    }

    @Test
    @DisplayName("F37b in an engine, two ranks make one completion, and the tokens are right")
    void twoRanksMakeOneCompletion() {
        if (!loads()) {
            neverHits();
            return;
        }
        var tokens = prompt(371, 6, 2);
        var outcome =
                runUnder(
                        FaultPlan.seeded(37).with(Fault.DELAY, 0.5),
                        Fault.DELAY,
                        LoadFailurePolicy.FAIL,
                        tokens);
        assertThat(((Outcome.Finished) outcome).tokens()).isEqualTo(engines().baseline(tokens));
    }

    @Test
    @DisplayName("F41 completions that come twice do not harm an engine")
    void duplicateCompletionsDoNoHarm() {
        if (!loads()) {
            neverHits();
            return;
        }
        var tokens = prompt(41, 6, 2);
        var outcome =
                runUnder(
                        FaultPlan.seeded(41).with(Fault.DUPLICATE, 1),
                        Fault.DUPLICATE,
                        LoadFailurePolicy.FAIL,
                        tokens);
        assertThat(((Outcome.Finished) outcome).tokens()).isEqualTo(engines().baseline(tokens));
    }

    @Test
    @DisplayName("G45b in an engine, calls come in the documented order")
    void callsComeInOrderInAnEngine() {
        var log = new CallLog();
        var recorded = Recording.kv(provider(), log);
        try (var engine =
                engines()
                        .open(
                                recorded,
                                producerRole(),
                                optionsOfThisTest(),
                                "engine-r",
                                LoadFailurePolicy.FAIL)
                        .start()) {
            engines().run(engine, VerifiedEngines.request(prompt(45, 3, 1), TransferParams.EMPTY));
        }
        var all =
                log.calls().stream()
                        .map(call ->
                                call.toString().replace("scheduler.settle", "scheduler.onReport"))
                        .toList();
        assertThat(all)
                .containsSubsequence(
                        "provider.openScheduler",
                        "worker 0.registerRegions",
                        "scheduler.onRequest",
                        "scheduler.lookup",
                        "scheduler.onAllocated",
                        "scheduler.buildPlan",
                        "worker 0.beginStep",
                        "worker 0.endStep",
                        "worker 0.report",
                        "scheduler.onReport",
                        "scheduler.finish");
        if (capabilities().has(Feature.BLOCK_LEASES)) {
            assertThat(all).containsSubsequence("scheduler.bindBlockPool", "scheduler.onRequest");
        }
        for (var worker : List.of("worker 0", "worker 1")) {
            var steps =
                    log.methods(worker).stream()
                            .filter(method ->
                                    List.of("beginStep", "endStep", "report").contains(method))
                            .toList();
            for (int i = 0; i < steps.size(); i++) {
                assertThat(steps.get(i))
                        .isEqualTo(List.of("beginStep", "endStep", "report").get(i % 3));
            }
            assertThat(log.methods(worker)).last().isEqualTo("close");
        }
        assertThat(log.of("scheduler", "finish")).hasSize(1);
        assertThat(log.of("scheduler", "close")).isNotEmpty();
    }
}
