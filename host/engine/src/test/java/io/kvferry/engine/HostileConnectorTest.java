// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.reference;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.testkit.AlteredKv;
import io.kvferry.engine.testkit.ScriptedKv.OnLoad;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.Completion.FailedBlocks;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/// Connectors that break the contract: no wrong token, no request without an outcome, no block
/// lost.
class HostileConnectorTest extends ConnectedEngine {
    private Engine open(KvConnectorProvider connector, LoadFailurePolicy policy) {
        return Engine.open(with(kv, policy).kvConnector(connector, kv.config(policy)));
    }

    /// Worker halves that call every load failed, for these blocks.
    private KvConnectorProvider failing(FailedBlocks... blocks) {
        return AlteredKv.reporting(
                kv,
                report ->
                        new StepReport(
                                report.rank(),
                                report.step(),
                                report.completions().stream()
                                        .map(completion -> failed(completion, blocks))
                                        .toList(),
                                report.payload(),
                                report.stats(),
                                report.events()));
    }

    private static Completion failed(Completion completion, FailedBlocks... blocks) {
        if (completion.id().direction() != TransferId.Direction.LOAD) {
            return completion;
        }
        return new Completion(
                completion.id(),
                completion.rank(),
                new Completion.Failed(
                        new Failure(ErrorCode.STORAGE_IO, "scripted failure"), List.of(blocks)));
    }

    /// A full hit is the case in which a failure that names nothing leaves nothing to compute.
    @ParameterizedTest
    @CsvSource({"20", "23"})
    void computesAllWhenAFailureNamesNoBlock(int length) {
        store(prompt(1, length));
        try (var engine =
                open(failing(new FailedBlocks(0, new int[0])), LoadFailurePolicy.RECOMPUTE)) {
            var outcome = run(engine, request(prompt(1, length), 10));
            assertThat(outcome.tokens()).isEqualTo(reference(prompt(1, length), 10));
            assertThat(outcome.usage().external()).isEmpty();
            assertThat(outcome.usage().computedTokens()).isEqualTo(length);
            assertEmpty(engine);
        }
    }

    @ParameterizedTest
    @CsvSource({"7,4", "-1,4", "0,5", "0,-1", "0,536870912"})
    void computesAllWhenAFailureNamesABlockThatWasNotToBeLoaded(int group, int position) {
        store(prompt(1, 20));
        try (var engine =
                open(
                        failing(new FailedBlocks(group, new int[] {4, position})),
                        LoadFailurePolicy.RECOMPUTE)) {
            var outcome = run(engine, request(prompt(1, 20), 10));
            assertThat(outcome.tokens()).isEqualTo(reference(prompt(1, 20), 10));
            assertThat(outcome.usage().external()).isEmpty();
            assertThat(engine.stats().counters().getOrDefault("connector_defects", 0L))
                    .isPositive();
            assertEmpty(engine);
        }
    }

    @Test
    void doesNotEndALoadByACompletionThatCameBeforeIt() {
        store(prompt(1, 23));
        kv.delay = 3;
        var early = TransferId.load("r1", 0);
        var connector =
                AlteredKv.reporting(
                        kv,
                        report ->
                                report.step() > 1
                                        ? report
                                        : new StepReport(
                                                report.rank(),
                                                report.step(),
                                                List.of(
                                                        new Completion(
                                                                early,
                                                                report.rank(),
                                                                new Completion.Completed(1))),
                                                report.payload(),
                                                report.stats(),
                                                report.events()));
        kv.pendingLookups = 2;
        try (var engine = open(connector, LoadFailurePolicy.FAIL)) {
            var first = engine.submit(request(prompt(1, 23), 10));
            engine.submit(request(prompt(2, 9), 1)).abort(); // so that there is a step at once
            assertThat(outcome(engine, first))
                    .isInstanceOfSatisfying(
                            Outcome.Finished.class,
                            finished ->
                                    assertThat(finished.tokens())
                                            .isEqualTo(reference(prompt(1, 23), 10)));
            assertThat(engine.stats().counters().getOrDefault("completions_unmatched", 0L))
                    .isEqualTo(1);
            assertEmpty(engine);
        }
    }

    @ParameterizedTest
    @CsvSource({"ASYNC,RECOMPUTE", "ASYNC,FAIL", "SYNC,RECOMPUTE", "SYNC,FAIL"})
    void goesOnWhenARevocationIsNeverAnswered(LoadMode mode, LoadFailurePolicy policy) {
        store(prompt(1, 23));
        kv.mode = mode;
        kv.onLoad = OnLoad.NEVER;
        kv.answerRevocations = false;
        try (var engine = Engine.open(with(kv, policy).loadLimit(Duration.ofMillis(10)))) {
            switch (outcome(engine, engine.submit(request(prompt(1, 23), 10)))) {
                case Outcome.Finished(_, var tokens, _, _, var usage) -> {
                    assertThat(policy).isEqualTo(LoadFailurePolicy.RECOMPUTE);
                    assertThat(tokens).isEqualTo(reference(prompt(1, 23), 10));
                    assertThat(usage.external()).isEmpty();
                }
                case Outcome.Failed(var failure, _) -> {
                    assertThat(policy).isEqualTo(LoadFailurePolicy.FAIL);
                    assertThat(failure.code()).isEqualTo(ErrorCode.TIMEOUT);
                }
            }
            assertThat(engine.stats().quarantinedBlocks()).isPositive();
            engine.checkInvariants();
        }
    }

    /// A request that has loaded most of its prompt needs many blocks at once for the rest.
    @Test
    void aLoadedRequestIsNotOvertakenByNewOnesThatTakeItsBlocks() {
        store(prompt(1, 120));
        try (var engine =
                Engine.open(with(kv, LoadFailurePolicy.FAIL).blockCount(48).stepTokens(400))) {
            var longOne = Arrays.copyOf(prompt(1, 120), 180); // 120 tokens are loaded, 60 computed
            Arrays.fill(longOne, 120, 180, 7);
            var small = new ArrayList<RequestHandle>();
            for (int i = 1; i <= 4; i++) { // which end one after the other, as those that follow
                small.add(engine.submit(request(prompt(100 + i, 13), i)));
            }
            engine.step();
            var big = engine.submit(request(longOne, 2));
            int finished = 0;
            for (int i = 0; big.await(Deadline.in(Duration.ZERO)).isEmpty(); i++) {
                while (small.size() < 8) { // four blocks each, and none more while it runs
                    small.add(engine.submit(request(prompt(200 + i * 8 + small.size(), 13), 4)));
                }
                engine.step();
                int before = small.size();
                small.removeIf(handle -> handle.await(Deadline.in(Duration.ZERO)).isPresent());
                finished += before - small.size();
                assertThat(finished).as("requests that finished first").isLessThan(100);
            }
            assertThat(big.await(Deadline.in(Duration.ZERO)).orElseThrow())
                    .isInstanceOf(Outcome.Finished.class);
        }
    }
}
