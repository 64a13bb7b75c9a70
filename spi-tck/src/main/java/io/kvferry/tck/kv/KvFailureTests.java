// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.tck.harness.HarnessRequest;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/// Group D of [KvConnectorContract]: failures.
abstract class KvFailureTests extends KvLoadTests {
    private static final int TRIES = 5;

    @Test
    @DisplayName(
            "D23 when the source breaks after the hit, the load ends as failed, and nothing is thrown")
    void brokenSourceFailsTheLoad() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var tokens = prompt(23, 4, 2);
        var request = pair.want(tokens, pair.make(tokens));
        var hit = pair.awaitHit(request, 0);
        assumeTrue(pair.breakSource(), "the source cannot be broken: override stopStore()");
        pair.consumer.allocate(request, 0, hit);
        pair.consumer.step();
        pair.consumer.awaitLoad(request, limit());
        assertThat(request.loadFailure()).as("outcome of a load from a broken source").isPresent();
        assertThat(request.computed()).isZero();
        pair.consumer.prefill(
                request, 3); // the engine computes it instead; saving must not throw either
        pair.consumer.finish(request, FinishReason.STOP);
        var next = pair.consumer.submit("next", tokens);
        assertThat(pair.consumer.lookupSettled(next, 0, limit()))
                .isInstanceOf(LookupResult.Miss.class);
        pair.consumer.finish(next, FinishReason.ABORT);
        pair.consumer.settle(limit());
    }

    @Test
    @DisplayName("D24 a failed load is final: what was good stays good")
    void failuresAreFinal() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = new Pair(shape().withRanks(2));
        var tokens = prompt(24, 6, 1);
        var request = pair.want(tokens, pair.make(tokens));
        var hit = pair.awaitHit(request, 0);
        assumeTrue(
                damageStore() || pair.breakSource(),
                "nothing can be made to fail: override damageStore() or stopStore()");
        pair.consumer.allocate(request, 0, hit);
        pair.consumer.step();
        pair.consumer.awaitLoad(request, limit());
        assertThat(request.loadFailure()).isPresent();
        int valid = request.computed();
        int reported = pair.consumer.completions().size();
        for (int i = 0; i < 10; i++) {
            pair.consumer.step(); // the harness goes on comparing the valid prefix
        }
        assertThat(request.computed()).isEqualTo(valid);
        assertThat(pair.consumer.completions()).hasSize(reported);
        pair.consumer.finish(request, FinishReason.ABORT);
        pair.consumer.settle(limit());
    }

    @Test
    @DisplayName("D25 when the source dies during a load, the load ends within its deadline")
    void deathDuringALoadEndsIt() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var tokens = prompt(25, 8, 1);
        var request = pair.want(tokens, pair.make(tokens));
        pair.consumer.allocate(request, 0, pair.awaitHit(request, 0));
        if (request.state() == HarnessRequest.State.LOADING) {
            pair.consumer.step();
        }
        assumeTrue(pair.breakSource(), "the source cannot be broken: override stopStore()");
        pair.consumer.step();
        pair.consumer.awaitLoad(
                request, limit()); // either outcome; the harness compares what is claimed
        pair.consumer.finish(request, FinishReason.ABORT);
        pair.consumer.settle(limit());
    }

    @Test
    @DisplayName(
            "D26 a damaged payload is a failed load, never wrong bytes, and is replaced by the next save")
    void damagedPayloadsAreNoticed() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var tokens = prompt(26, 4, 2);
        var params = pair.make(tokens);
        var request = pair.want(tokens, params);
        assumeTrue(damageStore(), "nothing at rest can be damaged: override damageStore()");
        var answer = pair.consumer.lookupSettled(request, 0, limit());
        pair.consumer.allocate(request, 0, answer);
        pair.consumer.step();
        pair.awaitLoadStepping(request);
        if (answer instanceof LookupResult.Hit) {
            assertThat(request.loadFailure()).as("outcome of a load of damaged blocks").isPresent();
        }
        pair.consumer.prefill(request, 100);
        pair.consumer.finish(request, FinishReason.STOP);
        pair.consumer.settle(limit());
        var again = pair.make(tokens);
        assertThat(pair.fetch(tokens, again)).isGreaterThanOrEqualTo(4 * shape().blockTokens());
        pair.settle();
    }

    @Test
    @DisplayName("D27 a request whose load failed does not get the same promise for ever")
    void brokenPromisesAreNotRepeatedForEver() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var tokens = prompt(27, 4, 2);
        var request = pair.want(tokens, pair.make(tokens));
        var answer = (LookupResult) pair.awaitHit(request, 0);
        assumeTrue(
                damageStore() || pair.breakSource(),
                "nothing can be made to fail: override damageStore() or stopStore()");
        int tries = 0;
        while (answer instanceof LookupResult.Hit) {
            assertThat(++tries)
                    .as("hits for a request whose loads fail")
                    .isLessThanOrEqualTo(TRIES);
            pair.consumer.allocate(request, 0, answer);
            pair.consumer.step();
            pair.consumer.awaitLoad(request, limit());
            if (request.loadFailure().isEmpty()) {
                break;
            }
            pair.consumer.startOver(request);
            answer = pair.consumer.lookupSettled(request, 0, limit());
        }
        pair.consumer.finish(request, FinishReason.ABORT);
        pair.consumer.settle(limit());
    }
}
