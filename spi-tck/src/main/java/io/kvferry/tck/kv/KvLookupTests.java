// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.tck.harness.HarnessRequest;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/// Group A of [KvConnectorContract]: what a lookup may answer.
abstract class KvLookupTests extends KvContractSupport {
    @Test
    @DisplayName("A1 a prompt that nobody stored is a miss")
    void missesWhatNobodyStored() {
        var harness = consumer(shape());
        var request = harness.submit("r", prompt(1, 3, 2));
        assertThat(harness.lookupSettled(request, 0, limit()))
                .isInstanceOf(LookupResult.Miss.class);
        harness.allocate(request, 0, LookupResult.MISS);
        harness.prefill(request, 100);
        harness.finish(request, FinishReason.STOP);
        harness.settle(limit());
    }

    /// All definite answers for prompts about `blocks` blocks long, for every local prefix, once
    /// they are stored.
    private List<LookupResult> answers(Pair pair, int blocks) {
        var answers = new ArrayList<LookupResult>();
        var tokens = prompt(2, blocks, 1);
        var params = pair.make(tokens);
        pair.consumer.finish(pair.want(tokens, params), FinishReason.ABORT);
        int blockTokens = shape().blockTokens();
        int[] lengths = {blocks * blockTokens - 1, blocks * blockTokens, blocks * blockTokens + 1};
        for (int length : lengths) {
            var shorter = Arrays.copyOf(tokens, length);
            var fresh = handsOff() ? pair.make(shorter) : params;
            for (int local = 0; local < length; local += blockTokens) {
                var request = pair.consumer.submit("l" + length + "-" + local, shorter, "", fresh);
                answers.add(pair.consumer.lookupSettled(request, local, limit()));
                if (!handsOff() || local + blockTokens >= length) {
                    pair.consumer.finish(request, FinishReason.ABORT);
                }
            }
        }
        return answers;
    }

    @Test
    @DisplayName("A2 an asynchronous hit has tokens")
    void neverAnswersAnAsynchronousHitOfNothing() {
        if (!loads()) {
            neverHits();
            return;
        }
        assertThat(answers(pair(), 3))
                .filteredOn(LookupResult.Hit.class::isInstance)
                .isNotEmpty()
                .allSatisfy(
                        answer -> assertThat(((LookupResult.Hit) answer).tokens()).isPositive());
    }

    @Test
    @DisplayName(
            "A3 a hit is never negative, for every local prefix of prompts around a block boundary")
    void neverAnswersLessThanTheLocalPrefix() {
        if (!loads()) {
            neverHits();
            return;
        }
        assertThat(answers(pair(), 2))
                .allSatisfy(answer -> {
                    if (answer instanceof LookupResult.Hit hit) {
                        assertThat(hit.tokens()).isPositive();
                        assertThat(hit.shares())
                                .allSatisfy(share -> assertThat(share.tokens()).isPositive());
                    }
                });
    }

    @Test
    @DisplayName(
            "A4 local and external tokens together stay within the prompt, for a synchronous hit one less")
    void staysWithinThePrompt() {
        if (!loads()) {
            neverHits();
            return;
        }
        answers(pair(), 4); // the harness refuses any answer beyond the prompt
    }

    @Test
    @DisplayName("A5 a lookup counts only what can be read now")
    void countsOnlyWhatCanBeReadNow() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var tokens = prompt(3, 4, 2);
        var params = pair.make(tokens);
        var before = pair.want(tokens, params);
        pair.consumer.finish(before, FinishReason.ABORT);
        var again = has(Feature.CONTENT_ADDRESSED) && !handsOff() ? params : pair.make(tokens);
        assumeTrue(pair.takeAway(), "nothing can be taken away: override forgetStore()");
        var request = pair.consumer.submit("after", tokens, "", again);
        var answer = pair.consumer.lookupSettled(request, 0, limit());
        if (answer instanceof LookupResult.Hit && !has(Feature.CONTENT_ADDRESSED)) {
            // A consumer cannot see the producer's clock; but then the load must fail cleanly.
            pair.consumer.allocate(request, 0, answer);
            pair.awaitLoadStepping(request);
            assertThat(request.loadFailure()).isPresent();
        } else {
            assertThat(answer).isInstanceOf(LookupResult.Miss.class);
        }
        pair.consumer.finish(request, FinishReason.ABORT);
        pair.settle();
    }

    @Test
    @DisplayName("A6 ten lookups without an allocation answer the same and leave nothing behind")
    void repeatedLookupsLeaveNoState() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var tokens = prompt(4, 3, 1);
        var request = pair.want(tokens, pair.make(tokens));
        var first = pair.awaitHit(request, 0);
        for (int i = 0; i < 10; i++) {
            var next = (LookupResult.Hit) pair.consumer.lookupSettled(request, 0, limit());
            assertThat(next.tokens()).isEqualTo(first.tokens());
            assertThat(next.mode()).isEqualTo(first.mode());
        }
        for (int i = 0; i < 3; i++) {
            pair.consumer.step();
        }
        assertThat(pair.consumer.completions()).as("transfers that nobody asked for").isEmpty();
        pair.consumer.finish(request, FinishReason.ABORT);
        pair.settle();
    }

    @Test
    @DisplayName("A7 a pending answer becomes definite")
    void pendingAnswersBecomeDefinite() {
        var harness = consumer(shape());
        var request = harness.submit("r", prompt(5, 2, 3), "", TransferParams.EMPTY);
        var answer = harness.lookupSettled(request, 0, limit()); // fails when it stays pending
        assertThat(answer).isNotInstanceOf(LookupResult.Pending.class);
        harness.finish(request, FinishReason.ABORT);
        harness.settle(limit());
    }

    @Test
    @DisplayName("A8 a hit is whole blocks, or reaches the end of the prompt")
    void hitsAreWholeBlocksOrReachTheEnd() {
        if (!loads()) {
            neverHits();
            return;
        }
        answers(pair(), 5); // the harness refuses any other length
    }

    @Test
    @DisplayName("A9 another salt or model never matches")
    void anotherSaltOrModelNeverMatches() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var tokens = prompt(6, 3, 2);
        var params = pair.make(tokens);
        var mine = pair.want(tokens, params);
        if (has(Feature.CONTENT_ADDRESSED)) {
            var salted =
                    pair.consumer.submit("salted", tokens, "another tenant", TransferParams.EMPTY);
            assertThat(pair.consumer.lookupSettled(salted, 0, limit()))
                    .isInstanceOf(LookupResult.Miss.class);
            pair.consumer.finish(salted, FinishReason.ABORT);
        }
        var stranger = consumer(shape().withModel("another-model"));
        var request = stranger.submit("stranger", tokens, "", params);
        var answer = stranger.lookupSettled(request, 0, limit());
        if (answer instanceof LookupResult.Hit) {
            // Where only the peers can tell, they must, before a byte of another model is used.
            stranger.allocate(request, 0, answer);
            stranger.stepUntil(
                    "end of the load",
                    limit().plus(Duration.ofSeconds(5)),
                    () -> {
                        pair.producer.step();
                        return request.state() != HarnessRequest.State.LOADING;
                    });
            assertThat(request.loadFailure()).as("load from another model").isPresent();
        }
        stranger.finish(request, FinishReason.ABORT);
        pair.consumer.finish(mine, FinishReason.ABORT);
        stranger.settle(limit());
    }
}
