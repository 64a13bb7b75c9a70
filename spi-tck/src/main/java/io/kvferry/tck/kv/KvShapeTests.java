// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.tck.harness.HarnessShape;
import io.kvferry.tck.harness.HarnessShape.Group;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/// Caches of other forms: pipeline stages, recurrent state, tensor-parallel sizes that differ.
abstract class KvShapeTests extends KvRankTests {
    @Test
    @DisplayName(
            "L18f pipeline stages, each with layers of its own, work where claimed; else the connector is refused")
    void pipelineStagesWorkWhereClaimed() {
        worksAsClaimed(Feature.PIPELINE_STAGES, shape().withStages(2), 195);
        worksAsClaimed(Feature.PIPELINE_STAGES, shape().withRanks(2).withStages(3), 196);
    }

    @Test
    @DisplayName(
            "L18g a group of recurrent state works where claimed; else the connector is refused")
    void recurrentStateWorksWhereClaimed() {
        worksAsClaimed(Feature.STATE_GROUPS, shape().withGroups(Group.state(2, 32)), 197);
        if (has(Feature.SEVERAL_GROUPS)) {
            worksAsClaimed(Feature.STATE_GROUPS, withState(), 198);
        }
    }

    private HarnessShape withState() {
        return shape().withGroups(Group.full(2, 32), Group.state(3, 16));
    }

    @Test
    @DisplayName(
            "D24d a failed block of a recurrent state voids the whole hit; or states are refused")
    void aFailedBlockOfAStateVoidsTheHit() {
        if (!loads()) {
            neverHits();
            return;
        }
        pairUnlessRefused(
                        has(Feature.SEVERAL_GROUPS)
                                ? withState()
                                : shape().withGroups(Group.state(2, 32)))
                .ifPresent(this::voidsTheHit);
    }

    /// Loads what was saved, or cannot be opened.
    private void worksAsClaimed(Feature feature, HarnessShape shape, int seed) {
        if (!has(feature)) {
            assertThatThrownBy(() -> new Pair(shape))
                    .as("opened without %s", feature)
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.INCOMPATIBLE))
                    .hasMessageContaining(feature.name());
            return;
        }
        if (!loads()) {
            neverHits();
            return;
        }
        var pair = new Pair(shape);
        var tokens = prompt(seed, 5, 1);
        assertThat(pair.fetch(tokens, pair.make(tokens)))
                .isGreaterThanOrEqualTo(5 * shape.blockTokens());
        pair.settle();
        pair.consumer.close();
        pair.producer.close();
    }

    @Test
    @DisplayName(
            "L18h blocks of an engine with another tensor-parallel size come in its parts, or not at all")
    void otherTensorParallelSizesWorkOrFailCleanly() {
        if (!loads()) {
            neverHits();
            return;
        }
        loadsFrom(4, 2, 199);
        loadsFrom(2, 4, 200);
    }

    private void loadsFrom(int makers, int takers, int seed) {
        var made = shape().withHeads(4, makers);
        var wanted = shape().withHeads(4, takers);
        var pair = new Pair(provider(), made, wanted);
        var tokens = prompt(seed, 5, 1);
        var params = pair.make(tokens);
        if (loadsFromOtherTpSizes()) {
            assertThat(pair.fetch(tokens, params))
                    .isGreaterThanOrEqualTo(5 * shape().blockTokens());
        } else {
            var request = pair.consumer.submit("other ranks", tokens, "", params);
            var answer = pair.consumer.lookupSettled(request, 0, limit());
            pair.consumer.allocate(request, 0, answer);
            pair.consumer.step();
            pair.awaitLoadStepping(request);
            if (answer instanceof LookupResult.Hit) {
                assertThat(request.loadFailure()).as("load from other ranks").isPresent();
            }
            pair.consumer.finish(request, FinishReason.ABORT);
        }
        pair.settleIfPossible();
        pair.consumer.close();
        pair.producer.close();
    }
}
