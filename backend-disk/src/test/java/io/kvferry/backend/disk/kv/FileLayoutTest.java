// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/// Files that the store takes: of at most 256 MiB and 16384 segments.
class FileLayoutTest {
    private static KvCacheSpec cache(int layers, long blockBytes) {
        var names = IntStream.range(0, layers).mapToObj(i -> "layer." + i).toList();
        var group =
                new KvCacheGroup(
                        0,
                        KvCacheGroup.Kind.FULL_ATTENTION,
                        new KvFormat.Heads(DType.UINT8, KvLayout.LBHNC, 1, 8),
                        names,
                        4,
                        blockBytes);
        return new KvCacheSpec(List.of(group), 4);
    }

    private static int run(int asked, KvCacheSpec cache) {
        var options = DiskOptions.SCHEMA.read("test", Map.of("run_blocks", asked));
        return FileLayout.of(options, cache, 1).run();
    }

    @ParameterizedTest
    @CsvSource({
        // layers, bytes of a block in each, the longest run
        "32, 65536, 128",
        "80, 1048576, 3",
        "20, 64, 819"
    })
    void refusesRunsThatNoFileTakes(int layers, long blockBytes, int longest) {
        var cache = cache(layers, blockBytes);
        assertThat(run(longest, cache)).isEqualTo(longest);
        for (int asked : new int[] {longest + 1, 1024}) {
            assertThatThrownBy(() -> run(asked, cache))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                    .hasMessageContaining("run_blocks " + asked)
                    .hasMessageContaining("at most " + longest);
        }
    }

    @ParameterizedTest
    @CsvSource({"32, 65536, 2", "80, 1048576, 1", "400, 64, 40", "20, 64, 64"})
    void choosesARunThatAFileTakesUnlessToldOtherwise(int layers, long blockBytes, int chosen) {
        assertThat(run(0, cache(layers, blockBytes))).isEqualTo(chosen);
    }

    @Test
    void refusesABlockThatNoFileTakes() {
        for (int asked : new int[] {0, 1}) {
            assertThatThrownBy(() -> run(asked, cache(2, 128 << 20 | 64)))
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining("block");
        }
    }
}
