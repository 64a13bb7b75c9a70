// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.replay;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/// The short form of `benchmarks/run replay`: a made trace.
class ReplayTest {
    @TempDir Path folder;

    @ParameterizedTest
    @CsvSource({"FILE_PER_BLOCK, 1, true", "DEFAULT_RUNS, 3, false"})
    void diskConnectorFindsNearlyAsMuchAsAnExactLru(
            BlockCut cut, int processes, boolean workerProcesses) throws Exception {
        compare(cut, processes, workerProcesses);
    }

    @ParameterizedTest
    @Tag("soak")
    @CsvSource({
        "FILE_PER_BLOCK, 1, false",
        "FILE_PER_BLOCK, 3, false",
        "FILE_PER_BLOCK, 3, true",
        "DEFAULT_RUNS, 1, false",
        "DEFAULT_RUNS, 1, true",
        "DEFAULT_RUNS, 3, true"
    })
    void soDoesItInTheOtherCases(BlockCut cut, int processes, boolean workerProcesses)
            throws Exception {
        compare(cut, processes, workerProcesses);
    }

    private void compare(BlockCut cut, int processes, boolean workerProcesses) throws Exception {
        var trace = Trace.made(300);
        int capacity = trace.distinct() / 10;
        long exact = trace.exactLru(capacity);
        long found =
                Replay.run(trace, cut, folder.resolve("kv"), capacity, processes, workerProcesses)
                        .found();
        assertThat(exact).isPositive();
        assertThat((double) found / exact)
                .as("%d processes found %d blocks, an exact LRU %d", processes, found, exact)
                .isGreaterThanOrEqualTo(0.95);
    }

    @Test
    void countsAsTheTraceReplayOfMooncakeDoes() {
        var trace = new Trace(List.of(ids(1, 2, 3), ids(1, 2, 4), ids(1, 2, 3), ids(5), ids(1, 2)));
        assertThat(trace.distinct()).isEqualTo(5);
        assertThat(trace.references()).isEqualTo(12);
        assertThat(trace.exactLru(3)).isEqualTo(0 + 2 + 2 + 0 + 0);
        assertThat(trace.exactLru(5)).isEqualTo(0 + 2 + 3 + 0 + 2);
    }

    @Test
    void readsTheFormatOfMooncakesTraces() throws IOException {
        var file =
                Files.writeString(
                        folder.resolve("trace.jsonl"),
                        """
                        {"timestamp": 0, "input_length": 900, "output_length": 5, "hash_ids": [0, 14]}
                        {"timestamp": 7, "input_length": 9, "output_length": 5, "hash_ids": [0]}
                        """);
        assertThat(Trace.read(file).requests()).containsExactly(ids(0, 14), ids(0));
    }

    private static int[] ids(int... ids) {
        return ids;
    }
}
