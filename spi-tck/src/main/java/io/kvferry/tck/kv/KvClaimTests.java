// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.tck.PluginCopy;
import io.kvferry.tck.faults.CutHandshakes;
import io.kvferry.tck.harness.HarnessRequest;
import io.kvferry.tck.harness.SplitProvider;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.ArrayList;

/// Group H of [KvConnectorContract]: what a connector claims beside loading and saving, and that
/// its halves share nothing.
abstract class KvClaimTests extends KvShapeTests {
    private static final int BOUND = 2;

    @Test
    @DisplayName(
            "G47b the halves share nothing: opened from class loaders of their own, they work as before")
    void halvesShareNothing() {
        assumeTrue(halvesCanBeSplit(), "the plugin needs classes of its host");
        var shape = shape().withRanks(2);
        try (var copies =
                PluginCopy.copies(
                        KvConnectorProvider.class,
                        provider(),
                        1 + shape.ranks(),
                        this::isSharedClass)) {
            var pair = new Pair(new SplitProvider(copies.providers()), shape, shape);
            var tokens = prompt(472, 4, 2);
            var params = pair.make(tokens);
            if (loads()) {
                assertThat(pair.fetch(tokens, params))
                        .isGreaterThanOrEqualTo(4 * shape.blockTokens());
            }
            pair.settleIfPossible();
            pair.consumer.close();
            pair.producer.close();
        }
    }

    @Test
    @DisplayName("H60 a save by layers takes each layer's bytes before the step has ended")
    void layersAreTakenBeforeTheStepHasEnded() {
        if (!has(Feature.LAYERWISE_SAVE) || !savesOnlyByLayers()) {
            return; // the engine never calls saveLayer, or another child saves at the end
        }
        // The first of these is long enough for a sound connector; the last for one on a machine
        // that stands still.
        int round = 0;
        for (long millis = 1; !areTakenWithin(Duration.ofMillis(millis), round++); millis *= 8) {
            assertThat(millis).as("ms after which layers are not taken").isLessThan(4_000);
        }
    }

    private boolean areTakenWithin(Duration wait, int round) {
        var pair = pair();
        var tokens = prompt(600 + round, 3, 1);
        var params = handsOff() ? producerParams() : TransferParams.EMPTY;
        var request = pair.producer.submit("early", tokens, "", params);
        pair.producer.admit(request);
        pair.producer.overwriteBeforeEnd(request, wait);
        pair.producer.prefill(request, 100);
        pair.producer.generate(request, 7);
        var made = pair.producer.finish(request, FinishReason.LENGTH).params();
        pair.producer.settle(limit());
        if (!loads()) {
            return true; // nothing of it can be seen
        }
        var wanted = pair.want(tokens, made);
        try {
            pair.load(wanted);
        } catch (AssertionError e) { // the harness found what was written after the last layer
            return false;
        }
        pair.consumer.finish(wanted, FinishReason.ABORT);
        pair.settleIfPossible();
        return true;
    }

    @Test
    @DisplayName("H61 loads beyond the bound are refused at once, and work again when it has room")
    void backPressureRefusesAndRecovers() {
        if (!loads()) {
            neverHits();
            return;
        }
        var bounded = optionsWithBound(BOUND);
        assumeTrue(bounded.isPresent(), "no load can be made to wait: override optionsWithBound()");
        var pair = pair();
        var consumer = track(consumerRole(), "bounded", consumerOptions(bounded.get()), shape());
        int count = 3 * BOUND;
        var requests = new ArrayList<HarnessRequest>();
        for (int i = 0; i < count; i++) {
            var tokens = prompt(610 + i, 3, 1);
            requests.add(consumer.submit("r" + i, tokens, "", pair.make(tokens)));
        }
        var hits =
                requests.stream()
                        .map(request -> consumer.lookupSettled(request, 0, limit()))
                        .toList();
        assumeTrue(stallStore(), "loads cannot be held up: override stallStore()");
        try {
            for (int i = 0; i < count; i++) {
                consumer.allocate(requests.get(i), 0, hits.get(i));
            }
            consumer.step();
            consumer.stepUntil("refusals while nothing ends", limit(), () -> refused(requests) > 0);
            assertThat(requests)
                    .filteredOn(request -> request.loadFailure().isPresent())
                    .as("loads that were refused")
                    .allSatisfy(request ->
                            assertThat(request.loadFailure().orElseThrow().code())
                                    .isEqualTo(ErrorCode.BACKPRESSURE));
            assertThat(refused(requests)).isBetween(1L, (long) count - BOUND);
        } finally {
            resumeStore(); // halves that close would wait for it
        }
        for (var request : requests) {
            consumer.awaitLoad(request, limit());
            consumer.finish(request, FinishReason.ABORT);
        }
        assertThat(refused(requests)).as("refused loads").isLessThanOrEqualTo(count - BOUND);
        var again = prompt(610 + count - 1, 3, 1);
        var request = consumer.submit("again", again, "", pair.make(again));
        var hit = consumer.lookupSettled(request, 0, limit());
        consumer.allocate(request, 0, hit);
        consumer.step();
        consumer.awaitLoad(request, limit());
        assertThat(request.loadFailure()).isEmpty();
        assertThat(request.loadedTokens()).isPositive();
        consumer.finish(request, FinishReason.ABORT);
        consumer.settle(limit());
        pair.settleIfPossible();
    }

    private static long refused(Iterable<HarnessRequest> requests) {
        long refused = 0;
        for (var request : requests) {
            refused += request.loadFailure().isPresent() ? 1 : 0;
        }
        return refused;
    }

    @Test
    @DisplayName("H62 what is saved under leases takes leases, where they are claimed")
    void leasesAreTakenWhereClaimed() {
        var pair = pair();
        pair.make(prompt(62, 3, 1));
        if (has(Feature.BLOCK_LEASES)) {
            assertThat(pair.producer.leasesTaken()).as("leases").isPositive();
        } else {
            assertThat(pair.producer.leasesTaken()).as("leases that are not claimed").isZero();
        }
        pair.settleIfPossible();
    }

    @Test
    @DisplayName(
            "H63 handshakes are exchanged where they are claimed, and damaged ones are refused")
    void handshakesAreExchangedWhereClaimed() {
        var harness = consumer(shape());
        var handshake = harness.workers().getFirst();
        if (!harness.capabilities().has(Feature.HANDSHAKE)) {
            assertThat(handshake.handshake().isEmpty()).as("a handshake not claimed").isTrue();
            return;
        }
        harness.close();
        for (int part = 1; part <= 3; part++) {
            var damaged = CutHandshakes.wrap(provider(), part);
            assertThatThrownBy(() -> new Pair(damaged, shape(), shape()))
                    .as("a handshake cut to %s quarters", part)
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e ->
                                    assertThat(e.code())
                                            .isIn(
                                                    ErrorCode.PROTOCOL,
                                                    ErrorCode.INCOMPATIBLE,
                                                    ErrorCode.CORRUPT));
        }
    }

    @Test
    @DisplayName(
            "H64 blocks are found by what they hold, or by the params of their request, as claimed")
    void blocksAreFoundAsClaimed() {
        if (!loads() || (has(Feature.CONTENT_ADDRESSED) && handsOff())) {
            return; // both ways lead there
        }
        var pair = pair();
        var tokens = prompt(64, 4, 1);
        var params = pair.make(tokens);
        var request = pair.consumer.submit("without params", tokens);
        if (has(Feature.CONTENT_ADDRESSED)) {
            var answer = pair.awaitHit(request, 0);
            assertThat(answer.mode())
                    .isEqualTo(
                            pair.consumer.capabilities().has(Feature.SYNC_LOAD)
                                    ? answer.mode()
                                    : LoadMode.ASYNC);
        } else {
            assertThat(pair.consumer.lookupSettled(request, 0, limit()))
                    .isInstanceOf(LookupResult.Miss.class);
            pair.consumer.finish(pair.want(tokens, params), FinishReason.ABORT);
        }
        pair.consumer.finish(request, FinishReason.ABORT);
        pair.settleIfPossible();
    }
}
