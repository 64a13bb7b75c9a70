// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.List;

class ReportMergerTest {
    private static final TransferId LOAD = TransferId.load("r", 0);

    private static StepReport report(int rank, TransferId id, Completion.Result result) {
        return new StepReport(
                rank,
                1,
                List.of(new Completion(id, rank, result)),
                Payload.EMPTY,
                Stats.EMPTY,
                List.of());
    }

    private static Completion.Failed failed(int... positions) {
        return new Completion.Failed(
                new Failure(ErrorCode.IO, "test"),
                List.of(new Completion.FailedBlocks(0, positions)));
    }

    private static Completion.Result only(MergedReport merged) {
        assertThat(merged.completions()).hasSize(1);
        assertThat(merged.completions().getFirst().rank()).isEqualTo(Completion.ALL_RANKS);
        return merged.completions().getFirst().result();
    }

    @Test
    @DisplayName("F37 an id comes out once, with its last rank, whatever the order")
    void comesOutOnceWithTheLastRank() {
        var merger = new ReportMerger(3);
        assertThat(
                        merger.merge(1, List.of(report(2, LOAD, new Completion.Completed(5))))
                                .completions())
                .isEmpty();
        assertThat(
                        merger.merge(2, List.of(report(0, LOAD, new Completion.Completed(6))))
                                .completions())
                .isEmpty();
        assertThat(only(merger.merge(3, List.of(report(1, LOAD, new Completion.Completed(7))))))
                .isEqualTo(new Completion.Completed(18));
        assertThat(merger.merge(4, List.of()).completions()).isEmpty();
    }

    @Test
    @DisplayName(
            "F38 how many ranks an id needs is fixed when the merger is made: another world is another merger")
    void theNumberOfRanksBelongsToTheMerger() {
        var two = new ReportMerger(2);
        var one = new ReportMerger(1);
        var report = report(0, LOAD, new Completion.Completed(1));
        assertThat(two.merge(1, List.of(report)).completions()).isEmpty();
        assertThat(one.merge(1, List.of(report)).completions()).hasSize(1);
    }

    @Test
    @DisplayName("F40 holds of several ids count each for itself, in every order of completions")
    void idsCountEachForThemselves() {
        var first = TransferId.save("r", 1);
        var other = TransferId.save("r", 2);
        int[][] orders = {
            {0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 0, 2}, {2, 0, 3, 1}, {1, 0, 3, 2}
        };
        for (var order : orders) {
            var merger = new ReportMerger(2);
            int out = 0;
            for (int event : order) {
                var id = event < 2 ? first : other;
                out +=
                        merger.merge(1, List.of(report(event % 2, id, new Completion.Completed(0))))
                                .completions()
                                .size();
            }
            assertThat(out).isEqualTo(2);
        }
    }

    @Test
    @DisplayName("F41 a completion that comes twice from one rank is dropped and noted")
    void dropsDuplicates() {
        var merger = new ReportMerger(2);
        var report = report(0, LOAD, new Completion.Completed(1));
        assertThat(merger.merge(1, List.of(report, report)).completions()).isEmpty();
        assertThat(merger.drainDuplicates()).hasSize(1);
        assertThat(merger.drainDuplicates()).isEmpty();
    }

    @Test
    @DisplayName("F37 one failed rank fails the whole, with the union of the failed blocks")
    void failuresAreTheUnion() {
        var merger = new ReportMerger(3);
        var merged =
                merger.merge(
                        1,
                        List.of(
                                report(0, LOAD, failed(3, 4)),
                                report(1, LOAD, new Completion.Completed(1)),
                                report(2, LOAD, failed(4, 6))));
        assertThat(((Completion.Failed) only(merged)).blocks().getFirst().positions())
                .containsExactly(3, 4, 6);
    }

    @Test
    void anUnspecifiedFailureMeansAllBlocks() {
        var merger = new ReportMerger(2);
        var all = new Completion.Failed(new Failure(ErrorCode.IO, "test"), List.of());
        var merged = merger.merge(1, List.of(report(0, LOAD, all), report(1, LOAD, failed(3))));
        assertThat(((Completion.Failed) only(merged)).blocks()).isEmpty();
    }

    @Test
    void aRankThatGaveUpMakesAFailureOneOfAllBlocks() {
        for (var first : List.of(failed(3), new Completion.Revoked())) {
            var second = first instanceof Completion.Failed ? new Completion.Revoked() : failed(3);
            var merged =
                    new ReportMerger(2)
                            .merge(1, List.of(report(0, LOAD, first), report(1, LOAD, second)));
            assertThat(((Completion.Failed) only(merged)).blocks()).isEmpty();
        }
    }

    @Test
    void revokedByOneRankIsRevoked() {
        var merger = new ReportMerger(2);
        var merged =
                merger.merge(
                        1,
                        List.of(
                                report(0, LOAD, new Completion.Completed(1)),
                                report(1, LOAD, new Completion.Revoked())));
        assertThat(only(merged)).isInstanceOf(Completion.Revoked.class);
    }
}
