// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.tck.harness.HarnessRequest;
import io.kvferry.tck.harness.HarnessShape;
import io.kvferry.tck.harness.HarnessShape.Group;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.Arrays;
import java.util.Optional;

/// Loads that fail in part: on one rank of several, in one group of several.
abstract class KvRankTests extends KvCloseTests {
    @Test
    @DisplayName(
            "F44c what is computed on a synchronous load that failed on another rank is never stored")
    void whatRestsOnALoadThatFailedElsewhereIsNotStored() {
        if (!loads() || !has(Feature.CONTENT_ADDRESSED) || handsOff()) {
            blocksOfFailedLoadsAreNotStored(); // nothing is found by what was computed elsewhere
            return;
        }
        for (int rank = 0; rank < 2; rank++) {
            failsOnOneRank(rank);
        }
    }

    private void failsOnOneRank(int rank) {
        var pair = new Pair(shape().withRanks(2));
        int blockTokens = shape().blockTokens();
        var whole = prompt(443 + rank, 7, 2);
        var prefix = Arrays.copyOf(whole, 3 * blockTokens + 1);
        pair.fetch(prefix, pair.make(prefix));
        var request = pair.consumer.submit("on a prefix that fails", whole);
        var hit = lookUpAtLeast(pair, request, 3 * blockTokens);
        pair.consumer.failNextLoad(rank);
        pair.consumer.allocate(request, 0, hit);
        if (request.state() == HarnessRequest.State.RUNNING) {
            pair.consumer.schedule(request, 100); // the other four blocks, in the step of the load
        }
        pair.consumer.step();
        pair.awaitLoadStepping(request);
        if (request.loadFailure().isPresent()) {
            pair.consumer.finish(request, FinishReason.ERROR);
        } else { // a composite found another child for it
            pair.consumer.finish(request, FinishReason.ABORT);
        }
        pair.consumer.settle(limit());

        var other = consumer(shape().withRanks(2));
        var next = other.submit("next", whole);
        var found = other.lookupSettled(next, 0, limit());
        other.allocate(next, 0, found);
        other.step();
        other.awaitLoad(next, limit()); // the harness compares what was loaded
        assertThat(next.loadedTokens())
                .as("tokens in the store; what was computed on the failed load is not")
                .isLessThanOrEqualTo(3 * blockTokens);
        other.finish(next, FinishReason.ABORT);
        other.settle(limit());

        // Stored by one rank alone it would come back here, beside what is right on the others.
        assertThat(pair.fetch(whole, pair.make(whole))).isEqualTo(7 * blockTokens);
        pair.settle();
    }

    private LookupResult.Hit lookUpAtLeast(Pair pair, HarnessRequest request, int tokens) {
        long end = System.nanoTime() + limit().toNanos();
        while (true) {
            var answer = pair.consumer.lookupSettled(request, 0, limit());
            if (answer instanceof LookupResult.Hit hit && hit.tokens() >= tokens) {
                return hit;
            }
            assertThat(System.nanoTime()).as("the prefix is not found: " + answer).isLessThan(end);
            pair.producer.step();
        }
    }

    /// Full attention beside a window, or a window alone.
    private HarnessShape windowed() {
        int window = 2 * shape().blockTokens() + 1;
        return has(Feature.SEVERAL_GROUPS)
                ? shape().withGroups(Group.full(2, 32), Group.sliding(2, 32, window))
                : shape().withGroups(Group.sliding(2, 32, window));
    }

    /// Two engines of that shape, unless it is refused.
    final Optional<Pair> pairUnlessRefused(HarnessShape shape) {
        try {
            return Optional.of(new Pair(shape));
        } catch (KvFerryException e) {
            assertThat(e.code().category())
                    .as("code of a refusal")
                    .isIn(ErrorCode.Category.INCOMPATIBLE, ErrorCode.Category.USAGE);
            assertThat(e.getMessage()).as("a refusal says why").isNotBlank();
            return Optional.empty();
        }
    }

    @Test
    @DisplayName(
            "D24b a failed block of a sliding window voids the whole hit; or windows are refused")
    void aFailedBlockOfAWindowVoidsTheHit() {
        if (!loads()) {
            neverHits();
            return;
        }
        pairUnlessRefused(windowed()).ifPresent(this::voidsTheHit);
    }

    final void voidsTheHit(Pair pair) {
        int blockTokens = shape().blockTokens();
        int lastGroup = pair.consumer.shape().groups() - 1;
        var tokens = prompt(242, 9, 2);
        var made = handsOff() ? tokens : Arrays.copyOf(tokens, 6 * blockTokens + 1);
        var params = pair.make(made);
        var request = pair.consumer.submit("voided", tokens, "", params);
        var hit = lookUpAtLeast(pair, request, 6 * blockTokens);
        pair.consumer.failNextLoad(0, lastGroup);
        pair.consumer.allocate(request, 0, hit);
        if (request.state() == HarnessRequest.State.RUNNING) {
            pair.consumer.schedule(request, 100);
        }
        pair.consumer.step();
        pair.awaitLoadStepping(request); // a composite may find another child: for the whole hit
        if (request.loadFailure().isPresent()) {
            assertThat(request.computed()).as("tokens of a voided hit").isZero();
            pair.consumer.startOver(request);
            pair.consumer.admit(request);
            pair.awaitLoadStepping(request);
        }
        pair.consumer.prefill(request, 100);
        pair.consumer.finish(request, FinishReason.STOP);
        pair.consumer.settle(limit());
        pair.fetch(tokens, pair.make(tokens)); // the harness compares what was stored since
        pair.settleIfPossible();
    }

    @Test
    @DisplayName("D24c a failed load names the missing blocks of every group")
    void aFailedLoadNamesTheBlocksOfEveryGroup() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pairUnlessRefused(windowed());
        assumeTrue(pair.isPresent(), "windows are refused");
        var tokens = prompt(244, 6, 2);
        var request = pair.get().want(tokens, pair.get().make(tokens));
        var hit = pair.get().awaitHit(request, 0);
        assumeTrue(damageStore(), "nothing at rest can be damaged: override damageStore()");
        pair.get().consumer.allocate(request, 0, hit);
        pair.get().consumer.step();
        pair.get().awaitLoadStepping(request); // the harness compares what is not named
        assertThat(request.loadFailure()).as("outcome of a load of damaged blocks").isPresent();
        pair.get().consumer.finish(request, FinishReason.ABORT);
        pair.get().settleIfPossible();
    }
}
