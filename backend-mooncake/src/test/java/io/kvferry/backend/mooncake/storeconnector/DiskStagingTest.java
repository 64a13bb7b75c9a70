// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// The arithmetic of the staging memory, and where its size comes from.
class DiskStagingTest {
    @TempDir Path folder;

    @Test
    void aKeyTakesItsPagesAndTwoMore() {
        assertThat(DiskStaging.bytesFor(768)).isEqualTo(12_288);
        assertThat(DiskStaging.bytesFor(256)).isEqualTo(12_288);
        assertThat(DiskStaging.bytesFor(4096)).isEqualTo(12_288);
        assertThat(DiskStaging.bytesFor(4097)).isEqualTo(16_384);
        assertThat(DiskStaging.bytesFor(0)).isEqualTo(8192);
        assertThat(DiskStaging.alone(2 * 12_288, 0.9).usable()).isEqualTo(22_118);
        assertThat(DiskStaging.alone(27_307, 0.9).usable()).isEqualTo(24_576);
        assertThat(DiskStaging.alone(1, 0.9).usable()).isEqualTo(1);
    }

    private static List<Integer> batches(long raw, int keys) {
        return batches(DiskStaging.alone(raw, 0.9, false), keys);
    }

    private static List<Integer> batches(DiskStaging staging, int keys) {
        var sizes = new ArrayList<Integer>();
        int most = staging.mostKeys(keys);
        for (int from = 0; from < keys; ) {
            int end = staging.batchEnd(from, keys, most, _ -> 12_288);
            sizes.add(end - from);
            from = end;
        }
        return sizes;
    }

    @Test
    void loadsAreSplitByBytesAlone() {
        assertThat(batches(2 * 12_288, 2)).containsExactly(1, 1);
        assertThat(batches(27_307, 3)).containsExactly(2, 1);
        assertThat(batches(24_576, 4)).containsExactly(1, 1, 1, 1);
        assertThat(batches(27_307, 4)).containsExactly(2, 2);
        assertThat(batches(36_864, 4)).containsExactly(2, 2);
        assertThat(batches(122_880, 4)).containsExactly(4);
        assertThat(batches(12_288, 4)).containsExactly(1, 1, 1, 1); // more than what is usable
        assertThat(batches(1L << 30, 1000)).containsExactly(1000);
    }

    /// What benchmarks compare with: vLLM's first form, which split also what fits.
    @Test
    void theOldSplitByCountMakesTwoBatchesOfLoadsThatFit() {
        long enough = 1L << 30;
        assertThat(batches(DiskStaging.alone(enough, 0.9, true), 3)).containsExactly(2, 1);
        assertThat(batches(DiskStaging.alone(enough, 0.9, true), 1)).containsExactly(1);
        assertThat(batches(DiskStaging.alone(enough, 0.9, true), 1000)).containsExactly(900, 100);
        assertThat(batches(DiskStaging.alone(27_307, 0.9, true), 4)).containsExactly(2, 2);
    }

    @Test
    void aBatchWaitsUntilAnotherHasEnded() throws InterruptedException {
        var one = DiskStaging.of("owner of this test", 40_960, 0.9);
        var other = DiskStaging.of("owner of this test", 40_960, 0.9);
        assertThat(one.take(24_576, 0)).isTrue();
        assertThat(other.take(24_576, 0)).isFalse();
        one.give(24_576);
        assertThat(other.take(24_576, 0)).isTrue();
        other.give(24_576);
    }

    private StoreChoice choice(String json, String... variables) throws Exception {
        Path file = Files.writeString(folder.resolve("mooncake.json"), json);
        Map<String, String> environment = new HashMap<>();
        environment.put("MOONCAKE_CONFIG_PATH", file.toString());
        for (int i = 0; i < variables.length; i += 2) {
            environment.put(variables[i], variables[i + 1]);
        }
        return StoreChoice.of(StoreOptions.SCHEMA.read("test", Map.of()), environment);
    }

    @Test
    void theFileOrTheVariableSwitchesSplittingOn() throws Exception {
        assertThat(choice("{}").staging().bytes()).isZero();
        assertThat(choice("{\"enable_offload\": \" True\"}").staging().bytes()).isPositive();
        assertThat(choice("{\"enable_offload\": 1}").staging().bytes()).isPositive();
        assertThat(choice("{\"enable_offload\": \"\"}").staging().bytes()).isZero();
        assertThat(choice("{\"enable_offload\": true}").staging().bytes())
                .isEqualTo(1_342_177_280L);
        assertThat(
                        choice("{\"enable_offload\": true}", "MOONCAKE_ENABLE_OFFLOAD", "no")
                                .staging()
                                .own())
                .isNull();
        assertThat(choice("{}", "MOONCAKE_ENABLE_OFFLOAD", " TRUE ").staging().bytes())
                .isPositive();
        var sized =
                choice(
                        "{}",
                        "MOONCAKE_ENABLE_OFFLOAD",
                        "1",
                        "MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES",
                        "1.5 KB",
                        "VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO",
                        "0.5");
        assertThat(sized.staging().bytes()).isEqualTo(1536);
        assertThat(sized.staging().ratio()).isEqualTo(0.5);
        assertThatThrownBy(() -> choice("{\"enable_offload\": \"false\"}"))
                .isInstanceOf(KvFerryException.class);
        assertThatThrownBy(() ->
                        choice(
                                "{}",
                                "MOONCAKE_ENABLE_OFFLOAD",
                                "1",
                                "MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES",
                                "4GiB"))
                .isInstanceOf(KvFerryException.class);
    }
}
