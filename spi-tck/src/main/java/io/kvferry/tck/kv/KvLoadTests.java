// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.DType;
import io.kvferry.tck.Mix;
import io.kvferry.tck.harness.HarnessRequest;
import io.kvferry.tck.harness.HarnessShape;
import io.kvferry.tck.harness.HarnessShape.Group;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.List;

/// Group L of [KvConnectorContract]: loads.
abstract class KvLoadTests extends KvAllocationTests {
    @Test
    @DisplayName("L17 every rank reports a load once")
    void everyRankReportsALoadOnce() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = new Pair(shape().withRanks(2));
        var tokens = prompt(17, 3, 2);
        var request = pair.want(tokens, pair.make(tokens));
        pair.load(request);
        for (int i = 0; i < 10; i++) {
            pair.consumer.step();
        }
        var ranks =
                pair.consumer.completions().stream()
                        .filter(completion ->
                                completion.id().direction() == TransferId.Direction.LOAD)
                        .filter(completion -> completion.id().child().isEmpty())
                        .map(completion -> completion.id() + " by " + completion.rank());
        assertThat(ranks.toList()).doesNotHaveDuplicates();
        assertThat(whole(pair.consumer.ended())).hasSize(1);
        pair.consumer.finish(request, FinishReason.STOP);
        pair.settle();
    }

    @Test
    @DisplayName(
            "L18a loaded bytes equal computed ones: every layer, rank, block size, stride and element type")
    void loadedBytesEqualComputedOnes() {
        if (!loads()) {
            neverHits();
            return;
        }
        var base = shape();
        var shapes =
                List.of(
                        base,
                        base.withRanks(4),
                        base.withPadding(64),
                        base.withBlocks(1, 16, 200),
                        base.withBlocks(16, 256, 40),
                        base.withDType(DType.BFLOAT16),
                        base.withDType(DType.FP8_E4M3));
        for (int i = 0; i < shapes.size(); i++) {
            checkBytes(shapes.get(i), 180 + i);
        }
    }

    private void checkBytes(HarnessShape shape, int seed) {
        checkBytes(new Pair(shape), seed);
    }

    private void checkBytes(Pair pair, int seed) {
        var shape = pair.producer.shape();
        var tokens = new int[6 * shape.blockTokens() + 1];
        for (int t = 0; t < tokens.length; t++) {
            tokens[t] = (int) (Mix.mix(seed * 77L + t) & 0xffff);
        }
        assertThat(pair.fetch(tokens, pair.make(tokens, 5)))
                .isGreaterThanOrEqualTo(6 * shape.blockTokens());
        pair.settle();
        pair.consumer.close();
        pair.producer.close();
    }

    @Test
    @DisplayName(
            "L18b positions outside a sliding window have no block and are left alone; or windows are refused")
    void slidingWindowsWorkOrAreRefused() {
        int window = 2 * shape().blockTokens() + 1;
        worksOrIsRefused(shape().withGroups(Group.sliding(2, 32, window)), 191);
        if (has(Feature.SEVERAL_GROUPS)) {
            worksOrIsRefused(
                    shape().withGroups(Group.full(2, 32), Group.sliding(3, 64, window)), 192);
        }
    }

    @Test
    @DisplayName("L18c groups of unequal block sizes work or are refused")
    void unequalBlockSizesWorkOrAreRefused() {
        if (!has(Feature.SEVERAL_GROUPS)) {
            severalGroupsWorkOrAreRefused();
            return;
        }
        worksOrIsRefused(shape().withGroups(Group.full(2, 32), new Group(1, 16, 2, 0)), 193);
    }

    /// Opens, and then loads what was saved; or says when it is opened why not.
    private void worksOrIsRefused(HarnessShape shape, int seed) {
        if (!loads()) {
            neverHits();
            return;
        }
        Pair pair;
        try {
            pair = new Pair(shape);
        } catch (KvFerryException e) {
            assertThat(e.getMessage()).as("a refusal says why").isNotBlank();
            return;
        }
        checkBytes(pair, seed);
    }

    @Test
    @DisplayName("L18d regions in device memory are refused where they are not claimed")
    void deviceRegionsAreRefusedUnlessClaimed() {
        assumeFalse(
                has(Feature.DEVICE_REGIONS),
                "DEVICE_REGIONS is claimed, and there is no device memory here to try it with");
        assertThatThrownBy(() -> producer(shape().inDeviceMemory()))
                .isInstanceOfAny(KvFerryException.class, IllegalStateException.class)
                .message()
                .isNotBlank();
        // What was opened before the refusal is checked for leaks after each test.
    }

    @Test
    @DisplayName("L18e several cache groups work where claimed, and are refused where not")
    void severalGroupsWorkOrAreRefused() {
        if (!loads()) {
            neverHits();
            return;
        }
        var shape = shape().withGroups(Group.full(2, 32), Group.full(3, 64));
        if (has(Feature.SEVERAL_GROUPS)) {
            checkBytes(shape, 190);
            return;
        }
        try {
            var pair = new Pair(shape);
            var tokens = prompt(19, 3, 1);
            pair.make(tokens);
            var request = pair.consumer.submit("r", tokens);
            assertThat(pair.consumer.lookupSettled(request, 0, limit()))
                    .isInstanceOf(LookupResult.Miss.class);
            pair.consumer.finish(request, FinishReason.ABORT);
        } catch (KvFerryException e) {
            assertThat(e.getMessage()).as("a refusal says why").isNotBlank();
        }
    }

    @Test
    @DisplayName("L19 blocks of other requests and gaps between blocks stay as they are")
    void blocksOfOthersStayAsTheyAre() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = new Pair(shape().withPadding(32));
        var neighbour = pair.consumer.submit("neighbour", prompt(191, 4, 3));
        pair.consumer.allocate(neighbour, 0, LookupResult.MISS);
        pair.consumer.prefill(neighbour, 100);
        var tokens = prompt(192, 5, 1);
        // The harness checks neighbour, free blocks and gaps after each step.
        pair.fetch(tokens, pair.make(tokens));
        pair.consumer.finish(neighbour, FinishReason.STOP);
        pair.settle();
    }

    @Test
    @DisplayName("L20 a synchronous load is in place when its step, or its layer, needs it")
    void synchronousLoadsAreInPlaceInTime() {
        var pair = pair();
        if (!loads()) {
            neverHits();
            return;
        }
        var tokens = prompt(20, 4, 3);
        var request = pair.want(tokens, pair.make(tokens));
        var hit = pair.awaitHit(request, 0);
        if (!pair.consumer.capabilities().has(Feature.SYNC_LOAD)) {
            assertThat(hit.mode()).isEqualTo(LookupResult.LoadMode.ASYNC);
        }
        pair.consumer.allocate(request, 0, hit);
        if (request.state() == HarnessRequest.State.RUNNING) {
            pair.consumer.schedule(
                    request, 100); // the harness compares each layer as soon as it may be used
        }
        pair.consumer.step();
        pair.awaitLoadStepping(request);
        assertThat(request.loadFailure()).isEmpty();
        pair.consumer.finish(request, FinishReason.STOP);
        pair.settle();
    }

    @Test
    @DisplayName("L21a a load ends in steps without a forward pass")
    void loadsEndWithoutAForwardPass() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var tokens = prompt(21, 4, 1);
        var request = pair.want(tokens, pair.make(tokens));
        pair.load(request); // nothing is scheduled meanwhile
        assertThat(request.loadFailure()).isEmpty();
        pair.consumer.finish(request, FinishReason.STOP);
        pair.settle();
    }

    @Test
    @DisplayName("L21b a load that is revoked before its first plan never starts")
    void loadsRevokedBeforeTheirPlanNeverStart() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        for (int turn = 0; turn < 2; turn++) { // the plan still names the load, and does not
            var tokens = prompt(213 + turn, 4, 1);
            var aborted = pair.want(tokens, pair.make(tokens));
            pair.consumer.allocate(aborted, 0, pair.awaitHit(aborted, 0));
            pair.consumer.finish(aborted, FinishReason.ABORT);
            pair.consumer.step();
            pair.consumer.stepUntil(
                    "end of the revoked load", limit(), () -> !pair.consumer.hasOpenLoad(aborted));
            pair.consumer.step();
            // By the end of a later load an earlier one would have written, and the harness
            // compares all blocks after each step.
            var others = prompt(215 + turn, 4, 1);
            var other = pair.want(others, pair.make(others));
            pair.load(other);
            assertThat(other.loadFailure()).isEmpty();
            pair.consumer.finish(other, FinishReason.STOP);
            if (handsOff()) {
                pair.producer.expireHolds(); // nobody fetched what was made for the aborted one
                pair.producer.expireLeases();
            }
            pair.settle();
        }
    }

    @Test
    @DisplayName("L22 two requests load the same blocks independently")
    void twoRequestsLoadTheSameBlocks() {
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = pair();
        var tokens = prompt(22, 4, 2);
        var one = pair.want(tokens, pair.make(tokens));
        var other = pair.want(tokens, pair.make(tokens));
        pair.consumer.allocate(one, 0, pair.awaitHit(one, 0));
        pair.consumer.allocate(other, 0, pair.awaitHit(other, 0));
        pair.consumer.step();
        pair.consumer.finish(one, FinishReason.ABORT);
        pair.awaitLoadStepping(other);
        assertThat(other.loadFailure()).isEmpty();
        pair.consumer.prefill(other, 100);
        pair.consumer.finish(other, FinishReason.STOP);
        pair.settle();
    }
}
