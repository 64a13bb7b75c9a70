// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.tck.JsonShape;
import io.kvferry.tck.harness.HarnessRequest;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.concurrent.locks.LockSupport;

/// Group E of [KvConnectorContract]: saves, holds, the end of requests.
abstract class KvSaveTests extends KvFailureTests {
    private static final Duration SHORTEST_LEASE = Duration.ofMillis(300);
    private static final Duration LONGEST_LEASE = Duration.ofSeconds(10);

    @Test
    @DisplayName(
            "E29 a hold is completed once by every rank; without a hold or lease there is nothing to complete")
    void holdsAreCompletedOnce() {
        var pair = new Pair(shape().withRanks(2));
        var tokens = prompt(29, 3, 2);
        var plain = pair.producer.submit("plain", tokens);
        pair.producer.admit(plain);
        pair.producer.prefill(plain, 100);
        assertThat(pair.producer.finish(plain, FinishReason.STOP))
                .isInstanceOf(FinishDecision.Release.class);
        pair.producer.settle(limit()); // the harness refuses completions that nothing stands for
        if (!has(Feature.HOLD)) {
            assertThat(pair.producer.openHolds()).isEmpty();
            return;
        }
        var params = pair.make(tokens);
        assertThat(pair.producer.openHolds())
                .as("holds for a request that is to be handed on")
                .hasSize(1);
        var id = pair.producer.openHolds().getFirst();
        pair.fetch(tokens, params);
        pair.settle();
        var byRank =
                pair.producer.completions().stream()
                        .filter(completion -> completion.id().equals(id));
        assertThat(byRank.map(completion -> completion.rank())).containsExactlyInAnyOrder(0, 1);
    }

    @Test
    @DisplayName("E30 after a release the connector leaves the blocks alone")
    void releasedBlocksAreLeftAlone() {
        var pair = pair();
        for (int i = 0; i < 5; i++) {
            var request = pair.producer.submit("r" + i, prompt(300 + i, 4, 1));
            pair.producer.admit(request);
            pair.producer.prefill(request, 7);
            pair.producer.finish(
                    request, FinishReason.STOP); // blocks are poisoned here, unless leased
            pair.producer.step();
        }
        pair.producer.settle(
                limit()); // the harness looks for writes into free blocks after each step
        assertThat(pair.producer.freeBlocks()).isEqualTo(shape().blocks());
    }

    @Test
    @DisplayName("E31 an abort at any point leaks nothing and reports nothing twice")
    void abortsLeakNothing() {
        var pair = pair();
        var tokens = prompt(31, 4, 2);
        var params = pair.make(tokens);
        var early = pair.consumer.submit("before any lookup", tokens);
        pair.consumer.finish(early, FinishReason.ABORT);
        var looked = pair.consumer.submit("after a lookup", tokens);
        pair.consumer.lookup(looked, 0);
        pair.consumer.finish(looked, FinishReason.ABORT);
        if (loads()) {
            var unplanned = pair.want(tokens, params);
            pair.consumer.allocate(unplanned, 0, pair.awaitHit(unplanned, 0));
            pair.consumer.finish(unplanned, FinishReason.ABORT);
            pair.consumer.step();
            var loading = pair.want(tokens, pair.make(tokens));
            pair.consumer.allocate(loading, 0, pair.awaitHit(loading, 0));
            pair.consumer.step();
            pair.consumer.finish(loading, FinishReason.ABORT);
        }
        var saving = pair.producer.submit("during a save", prompt(311, 4, 1), "", producerParams());
        pair.producer.admit(saving);
        pair.producer.schedule(saving, 100);
        pair.producer.step();
        pair.producer.finish(saving, FinishReason.ABORT);
        pair.producer.expireHolds();
        if (handsOff()) {
            pair.make(prompt(312, 3, 1));
            pair.producer.expireHolds();
            pair.producer.expireLeases();
        }
        pair.settle();
    }

    @Test
    @DisplayName("E32a what is written into blocks after their release never reaches the store")
    void laterContentsNeverReachTheStore() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var first = prompt(320, 5, 2);
        var params = pair.make(first);
        for (int i = 0; i < 4; i++) {
            var churn = pair.producer.submit("churn" + i, prompt(321 + i, 6, 1));
            pair.producer.admit(churn);
            pair.producer.prefill(churn, 100);
            pair.producer.finish(churn, FinishReason.STOP);
        }
        assertThat(pair.fetch(first, params)).isGreaterThanOrEqualTo(5 * shape().blockTokens());
        pair.settle();
    }

    @Test
    @DisplayName("E32b what a failed forward pass was to compute is never stored")
    void failedForwardPassesStoreNothing() {
        var pair = pair();
        var tokens = prompt(324, 5, 2);
        var request = pair.producer.submit("r", tokens);
        pair.producer.admit(request);
        pair.producer.schedule(request, 2 * shape().blockTokens());
        pair.producer.step();
        pair.producer.schedule(request, 100);
        pair.producer.failNextForward();
        pair.producer.step();
        pair.producer.finish(request, FinishReason.ERROR);
        pair.producer.settle(limit());
        for (int i = 0; i < 5; i++) {
            pair.producer.step();
            pair.consumer.step();
        }
        var next = pair.consumer.submit("next", tokens);
        var answer = pair.consumer.lookupSettled(next, 0, limit());
        pair.consumer.allocate(next, 0, answer);
        pair.consumer.step();
        pair.awaitLoadStepping(next); // whatever is loaded must be right: the harness compares it
        assertThat(next.loadedTokens()).isLessThanOrEqualTo(2 * shape().blockTokens());
        pair.consumer.finish(next, FinishReason.ABORT);
        pair.settle();
    }

    @Test
    @DisplayName("E32c of a step in which the model left one request out, the others are stored")
    void onlyWhatWasNotComputedIsKeptOutOfTheStore() {
        var pair = pair();
        var left = pair.producer.submit("left out", prompt(3251, 5, 2));
        var computed = pair.producer.submit("computed", prompt(3252, 5, 2));
        pair.producer.admit(left);
        pair.producer.admit(computed); // may take steps
        pair.producer.schedule(left, 100);
        pair.producer.schedule(computed, 100);
        pair.producer.failNext(left);
        pair.producer.step();
        pair.producer.finish(left, FinishReason.ERROR);
        pair.producer.finish(computed, FinishReason.STOP);
        pair.producer.settle(limit());
        if (loads() && !handsOff() && has(Feature.SAVE)) {
            var there = pair.consumer.submit("there", prompt(3252, 5, 2));
            pair.awaitHit(there, 0);
            pair.consumer.finish(there, FinishReason.ABORT);
        }
        var next = pair.consumer.submit("next", prompt(3251, 5, 2));
        var answer = pair.consumer.lookupSettled(next, 0, limit());
        pair.consumer.allocate(next, 0, answer);
        pair.consumer.step();
        pair.awaitLoadStepping(next); // whatever is loaded must be right: the harness compares it
        assertThat(next.loadedTokens()).as("tokens that were never computed").isZero();
        pair.consumer.finish(next, FinishReason.ABORT);
        pair.settleIfPossible();
    }

    @Test
    @DisplayName("E33 a preemption with a save under way spoils neither the save nor the blocks")
    void preemptionsDoNotSpoilSaves() {
        var pair = pair();
        var tokens = prompt(33, 5, 2);
        var request =
                pair.producer.submit(
                        "r", tokens, "", handsOff() ? producerParams() : TransferParams.EMPTY);
        pair.producer.allocate(request, 0, LookupResult.MISS);
        pair.producer.schedule(request, 4 * shape().blockTokens());
        pair.producer.step();
        pair.producer.preempt(request); // what is not leased is poisoned at once
        var churn = pair.producer.submit("churn", prompt(331, 6, 1));
        pair.producer.allocate(churn, 0, LookupResult.MISS);
        pair.producer.prefill(churn, 100);
        pair.producer.finish(churn, FinishReason.STOP);
        pair.producer.admit(request);
        if (request.state() == HarnessRequest.State.LOADING) {
            pair.producer.awaitLoad(request, limit());
            assertThat(request.loadFailure()).isEmpty();
        }
        pair.producer.prefill(request, 100);
        pair.producer.generate(request, 7);
        var params = JsonShape.copy(pair.producer.finish(request, FinishReason.LENGTH).params());
        pair.producer.step();
        if (loads()) {
            pair.fetch(tokens, params);
        }
        pair.settle();
    }

    @Test
    @DisplayName(
            "E34a an unclaimed hand-off ends with its lease, and a late consumer gets a clean failure")
    void unclaimedHandOffsExpire() {
        var pair = pair();
        var tokens = prompt(34, 4, 2);
        var params = pair.make(tokens);
        if (!handsOff() || !loads()) {
            assertThat(pair.producer.openHolds()).isEmpty();
            pair.producer.settle(limit()); // nothing stays behind for a consumer
            return;
        }
        assertThat(pair.producer.openHolds().size() + pair.producer.openLeases().size())
                .isPositive();
        pair.producer.expireHolds();
        pair.producer.expireLeases();
        pair.producer.stepUntil(
                "revocations answered",
                limit(),
                () -> pair.producer.openHolds().isEmpty() && pair.producer.openLeases().isEmpty());
        pair.producer.settle(limit());
        assertThat(pair.producer.freeBlocks()).isEqualTo(shape().blocks());
        var late = pair.consumer.submit("late", tokens, "", params);
        var answer = pair.consumer.lookupSettled(late, 0, limit());
        pair.consumer.allocate(late, 0, answer);
        pair.consumer.step();
        pair.awaitLoadStepping(late); // the harness compares what is claimed to have been loaded
        if (answer instanceof LookupResult.Hit && !has(Feature.CONTENT_ADDRESSED)) {
            assertThat(late.loadFailure()).as("outcome of a load after the hold ended").isPresent();
        }
        pair.consumer.finish(late, FinishReason.ABORT);
        pair.settle();
    }

    @Test
    @DisplayName("E34b a revoked hold is answered by every rank, once")
    void revokedHoldsAreAnswered() {
        if (!has(Feature.HOLD)) {
            var pair = pair();
            pair.make(prompt(341, 3, 1));
            assertThat(pair.producer.openHolds()).isEmpty();
            return;
        }
        var pair = new Pair(shape().withRanks(2));
        pair.make(prompt(341, 3, 1));
        var id = pair.producer.openHolds().getFirst();
        pair.producer.expireHolds();
        pair.settle();
        var results =
                pair.producer.ended().stream()
                        .filter(completion -> completion.id().equals(id))
                        .toList();
        assertThat(results).hasSize(1);
        assertThat(results.getFirst().result()).isInstanceOf(Completion.Revoked.class);
    }

    @Test
    @DisplayName("E35 a lease is renewed while its consumer only queues")
    void leasesAreRenewedForQueuedConsumers() {
        if (optionsWithLease(SHORTEST_LEASE).isEmpty() && !handsOff()) {
            var pair = pair();
            pair.make(prompt(35, 3, 1));
            pair.settle(); // nothing is handed on, so nothing is held
            return;
        }
        var time = SHORTEST_LEASE;
        while (!keepsTheLeaseInTheQueue(time)) {
            time = time.multipliedBy(2);
        }
    }

    /// False when the machine paused for so long that the lease may end, which says nothing about
    /// the connector.
    private boolean keepsTheLeaseInTheQueue(Duration time) {
        var options = optionsWithLease(time);
        assumeTrue(
                options.isPresent(),
                "the connector renews nothing: override optionsWithLease() if it does");
        var producer = track(producerRole(), "renewing-" + time, options.get(), shape());
        var consumer =
                track(consumerRole(), "queueing-" + time, consumerOptions(options.get()), shape());
        var tokens = prompt(35 + (int) time.dividedBy(SHORTEST_LEASE), 3, 1);
        var made = producer.submit("made", tokens, "", producerParams());
        producer.admit(made);
        producer.prefill(made, 100);
        producer.generate(made, 7);
        long last = System.nanoTime(); // the lease begins
        var params = JsonShape.copy(producer.finish(made, FinishReason.LENGTH).params());
        var queued = consumer.submit("queued", tokens, "", params);
        long end = last + time.multipliedBy(4).toNanos();
        long longest = 0;
        while (last - end < 0) {
            consumer.lookup(queued, 0);
            consumer.step();
            producer.step();
            LockSupport.parkNanos(5_000_000);
            long now = System.nanoTime();
            longest = Math.max(longest, now - last);
            last = now;
        }
        var answer = consumer.lookupSettled(queued, 0, limit());
        longest = Math.max(longest, System.nanoTime() - last);
        boolean paused = longest > time.dividedBy(4).toNanos();
        boolean inconclusive =
                paused
                        && !(answer instanceof LookupResult.Hit)
                        && time.compareTo(LONGEST_LEASE) < 0;
        if (!inconclusive) {
            assertThat(answer)
                    .as("after four lease times in the queue")
                    .isInstanceOf(LookupResult.Hit.class);
            consumer.allocate(queued, 0, answer);
            consumer.step();
            consumer.awaitLoad(queued, limit());
            assertThat(queued.loadFailure()).isEmpty();
        }
        consumer.finish(queued, FinishReason.STOP);
        consumer.settle(limit());
        producer.stepUntil("the producer lets go", limit(), () -> producer.openLeases().isEmpty());
        return !inconclusive;
    }

    @Test
    @DisplayName("E36 the params of a response survive JSON and hold all that the consumer needs")
    void paramsSurviveJson() {
        var pair = pair();
        var tokens = prompt(36, 3, 2);
        var params = pair.make(tokens); // a copy as JSON would make it
        if (!handsOff()) {
            assertThat(params.values()).as("params of a connector that hands nothing on").isEmpty();
            return;
        }
        assertThat(params.values()).as("params of a response that is to be handed on").isNotEmpty();
        if (loads()) {
            pair.fetch(tokens, params);
        }
        pair.settle();
        assertThat(pair.producer.ended())
                .allSatisfy(end ->
                        assertThat(end.id().direction()).isEqualTo(TransferId.Direction.SAVE));
    }
}
