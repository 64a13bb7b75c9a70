// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.embedding;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.examples.folder.FolderConnectorProvider;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.function.IntUnaryOperator;
import java.util.stream.IntStream;

/// The loop with a connector: a second loop gets what the first computed, byte for byte.
class StepLoopTest {
    private static final int BLOCK_TOKENS = 4;
    private static final int TOKEN_BYTES = 2 * 4 * 4; // K and V of one head of 4 floats
    private static final int[] PROMPT = IntStream.range(100, 114).toArray(); // 3 blocks and a half

    private static final CacheNamespace NAMESPACE =
            new CacheNamespace(
                    "weights",
                    "own-engine-1",
                    DType.FLOAT32,
                    KvLayout.LBNHC,
                    1,
                    BLOCK_TOKENS,
                    1,
                    1,
                    "");

    private static final KvCacheSpec CACHE =
            new KvCacheSpec(
                    List.of(
                            new KvCacheGroup(
                                    0,
                                    KvCacheGroup.Kind.FULL_ATTENTION,
                                    new KvFormat.Heads(DType.FLOAT32, KvLayout.LBNHC, 1, 4),
                                    List.of("layer.0", "layer.1"),
                                    BLOCK_TOKENS,
                                    BLOCK_TOKENS * TOKEN_BYTES)),
                    16);

    @TempDir Path folder;

    private StepLoop open(String engineId) {
        var config =
                ConnectorConfig.of(
                        "FolderConnector",
                        KvRole.BOTH,
                        engineId,
                        Map.of("folder", folder.toString()));
        return new StepLoop(NAMESPACE, CACHE, new FolderConnectorProvider(), config);
    }

    /// What the engine would compute: here, bytes that follow from prefix, layer and position.
    private static byte expected(int layer, int position, int at) {
        int prefix = 0;
        for (int i = 0; i <= position; i++) {
            prefix = 31 * prefix + PROMPT[i];
        }
        return (byte) (31 * prefix + 7 * layer + at);
    }

    private static StepLoop.Compute computing(StepLoop loop) {
        return (request, from, to) ->
                eachByte(
                        loop,
                        request::blockOf,
                        from,
                        to,
                        (segment, offset, value) ->
                                segment.set(ValueLayout.JAVA_BYTE, offset, value));
    }

    private interface ByteAction {
        void at(MemorySegment segment, long offset, byte expected);
    }

    private static void eachByte(
            StepLoop loop, IntUnaryOperator blockOf, int from, int to, ByteAction action) {
        for (var region : loop.regions()) {
            for (int position = from; position < to; position++) {
                long row =
                        region.offset(blockOf.applyAsInt(position))
                                + (long) position % BLOCK_TOKENS * TOKEN_BYTES;
                for (int i = 0; i < TOKEN_BYTES; i++) {
                    action.at(
                            region.segment(), row + i, expected(region.layerIndex(), position, i));
                }
            }
        }
    }

    private static void assertEveryByte(StepLoop loop, int... blocks) {
        eachByte(
                loop,
                position -> blocks[position / BLOCK_TOKENS],
                0,
                PROMPT.length,
                (segment, offset, expected) ->
                        assertThat(segment.get(ValueLayout.JAVA_BYTE, offset)).isEqualTo(expected));
    }

    @Test
    void aSecondLoopGetsTheBlocksOfTheFirst() throws Exception {
        try (var first = open("first")) {
            assertThat(first.prefill(PROMPT, new int[] {0, 1, 2, 3}, computing(first))).isZero();
        }
        try (var second = open("second")) {
            int[] blocks = {9, 3, 7, 5}; // other places: a block id means nothing elsewhere
            assertThat(second.prefill(PROMPT, blocks, computing(second))).isEqualTo(12);
            assertEveryByte(second, blocks);
        }
    }

    @Test
    void whatTheConnectorCannotDeliverIsComputed() throws Exception {
        try (var first = open("first")) {
            first.prefill(PROMPT, new int[] {0, 1, 2, 3}, computing(first));
            damage(new Request("any", PROMPT, new int[4], NAMESPACE).blockHash(1).hex());
        }
        try (var second = open("second")) {
            int[] blocks = {4, 5, 6, 7};
            assertThat(second.prefill(PROMPT, blocks, computing(second))).isEqualTo(4);
            assertEveryByte(second, blocks);
        }
    }

    /// Changes a byte of one stored block.
    private void damage(String hash) throws IOException {
        try (var files = Files.walk(folder)) {
            var file =
                    files.filter(path -> path.toString().contains(hash)).findFirst().orElseThrow();
            var bytes = Files.readAllBytes(file);
            bytes[5] ^= 1;
            Files.write(file, bytes);
        }
    }
}
