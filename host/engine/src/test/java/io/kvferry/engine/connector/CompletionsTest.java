// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.connector;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.telemetry.Metrics;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.Completion.FailedBlocks;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

class CompletionsTest {
    private static final TransferId LOAD = TransferId.load("r1", 0);
    private static final Completion.Result DONE = new Completion.Completed(1);
    private static final Completion.Result FAILED =
            new Completion.Failed(
                    new Failure(ErrorCode.IO, "test"), List.of(new FailedBlocks(0, new int[] {3})));

    private final Set<TransferId> open = new HashSet<>(Set.of(LOAD));
    private final Completions completions =
            new Completions(2, new Metrics(), id -> open.contains(id));
    private final List<Completion> merged = new ArrayList<>();

    /// A connector does with blocks that are gone what it must not do with those that cannot be
    /// read.
    @ParameterizedTest
    @EnumSource(names = {"MISS", "BACKPRESSURE"})
    void failsForTheRankThatSaysMostOfTheBlocks(ErrorCode first) {
        var gone = new Completion.Failed(new Failure(first, "test"), List.of());
        completions.add(LOAD, 0, gone, merged);
        completions.add(LOAD, 1, FAILED, merged);

        assertThat(merged)
                .singleElement()
                .satisfies(completion ->
                        assertThat(((Completion.Failed) completion.result()).failure().code())
                                .isEqualTo(ErrorCode.IO));
    }

    @Test
    void trustsNoBlockOfALoadThatOneRankFailedAndAnotherGaveUp() {
        completions.add(LOAD, 0, FAILED, merged);
        completions.add(LOAD, 1, new Completion.Revoked(), merged);

        assertThat(merged)
                .singleElement()
                .satisfies(completion ->
                        assertThat(((Completion.Failed) completion.result()).blocks()).isEmpty());
    }

    @Test
    void dropsACompletionOfALoadThatIsNotOpenYet() {
        open.clear();
        completions.add(LOAD, 0, DONE, merged);
        open.add(LOAD);
        completions.add(LOAD, 1, DONE, merged);
        assertThat(merged).as("rank 0 has not loaded it").isEmpty();

        completions.add(LOAD, 0, DONE, merged);
        assertThat(merged).extracting(Completion::id).containsExactly(LOAD);
    }

    @Test
    void dropsACompletionOfAllRanksOfALoadThatIsNotOpenYet() {
        open.clear();
        completions.add(LOAD, 0, DONE, merged);
        completions.add(LOAD, 1, DONE, merged);
        assertThat(merged).isEmpty();
        open.add(LOAD);
        completions.add(LOAD, 0, FAILED, merged);
        completions.add(LOAD, 1, DONE, merged);
        assertThat(merged).as("the load itself still ends").hasSize(1);
    }

    @Test
    void takesPartsOfAnOpenLoadFromTheChildrenOfAComposite() {
        var part = LOAD.forChild("a/~1");
        completions.add(part, 0, DONE, merged);
        completions.add(part, 1, DONE, merged);
        assertThat(merged).extracting(Completion::id).containsExactly(part);
    }

    @Test
    void remembersASaveThatEndsBeforeItsHold() {
        var save = TransferId.save("r1", 0);
        completions.add(save, 0, DONE, merged);
        completions.add(save, 1, DONE, merged);
        assertThat(completions.hasEnded(save)).isTrue();
    }
}
