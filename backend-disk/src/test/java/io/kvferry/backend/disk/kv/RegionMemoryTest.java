// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;

/// The order of the bytes in a file of several blocks, and how many segments they are.
class RegionMemoryTest {
    private static final int LAYERS = 3;
    private static final int BLOCKS = 8;
    private static final int BYTES = 16;

    /// One range more than the blocks take, as engines may hand out.
    private final MemorySegment all = Arena.ofAuto().allocate((LAYERS * BLOCKS + 1) * BYTES, 8);

    private RegionMemory memory(KvLayout layout) {
        for (int block = 0; block < BLOCKS; block++) {
            for (int layer = 0; layer < LAYERS; layer++) {
                all.asSlice(offset(layout, layer, block), BYTES).fill(content(layer, block));
            }
        }
        var regions =
                IntStream.range(0, LAYERS)
                        .mapToObj(layer -> {
                            long stride = offset(layout, layer, 1) - offset(layout, layer, 0);
                            long from = offset(layout, layer, 0);
                            return new KvRegion(
                                    "layer." + layer,
                                    layer,
                                    0,
                                    new MemoryRange.Host(
                                            all.asSlice(from, (BLOCKS - 1) * stride + 2 * BYTES)),
                                    BLOCKS,
                                    BYTES,
                                    stride);
                        })
                        .toList();
        return RegionMemory.of(regions, 1, layout).getFirst();
    }

    /// Of the names of the dimensions, outermost first.
    private static boolean isBlockMajor(KvLayout layout) {
        return layout.name().startsWith("BL");
    }

    private static long offset(KvLayout layout, int layer, int block) {
        return BYTES * (isBlockMajor(layout) ? block * LAYERS + layer : layer * BLOCKS + block);
    }

    private static byte content(int layer, int block) {
        return (byte) (1 + layer * BLOCKS + block);
    }

    /// What the segments hold, a byte for each range; 0 for one that is not wanted.
    private static List<Byte> contents(List<MemorySegment> segments) {
        var found = new ArrayList<Byte>();
        for (var segment : segments) {
            for (long at = 0; at < segment.byteSize(); at += BYTES) {
                byte content = segment.get(ValueLayout.JAVA_BYTE, at);
                assertThat(segment.asSlice(at, BYTES).toArray(ValueLayout.JAVA_BYTE))
                        .containsOnly(content);
                assertThat(segment.isReadOnly()).isEqualTo(content == 0);
                found.add(content);
            }
        }
        return found;
    }

    /// Which ids a request has changes from one time to the next; the order in the file does not.
    @ParameterizedTest
    @EnumSource
    void aFileHasTheOrderOfTheLayoutWhateverTheBlocks(KvLayout layout) {
        var random = new Random(7);
        var memory = memory(layout);
        for (int i = 0; i < 500; i++) {
            int[] ids =
                    IntStream.range(0, random.nextInt(2, 7))
                            .map(_ -> random.nextInt(BLOCKS + 1))
                            .map(id -> id == BLOCKS ? BlockTable.NO_BLOCK : id)
                            .toArray();
            if (random.nextBoolean()) { // some side by side
                int from = random.nextInt(ids.length);
                for (int at = from + 1; at < ids.length && ids[at - 1] < BLOCKS - 1; at++) {
                    ids[at] = ids[at - 1] + 1;
                }
            }
            var expected = new ArrayList<Byte>();
            for (int outer = 0; outer < (isBlockMajor(layout) ? ids.length : LAYERS); outer++) {
                for (int inner = 0; inner < (isBlockMajor(layout) ? LAYERS : ids.length); inner++) {
                    int layer = isBlockMajor(layout) ? inner : outer;
                    int id = ids[isBlockMajor(layout) ? outer : inner];
                    expected.add(id == BlockTable.NO_BLOCK ? 0 : content(layer, id));
                }
            }
            assertThat(contents(memory.segments(ids))).isEqualTo(expected);
        }
    }

    @Test
    void blocksSideBySideAreOneSegmentOfEachLayer() {
        assertThat(memory(KvLayout.LBNHC).segments(new int[] {2, 3, 4, 7, 6}))
                .extracting(MemorySegment::byteSize)
                .containsExactly(48L, 16L, 16L, 48L, 16L, 16L, 48L, 16L, 16L);
    }

    @Test
    void blocksWithAGapBetweenThemAreSegmentsOfTheirOwn() {
        long stride = 2 * BYTES;
        var bytes = Arena.ofAuto().allocate(BLOCKS * stride, 8);
        var region =
                new KvRegion("layer.0", 0, 0, new MemoryRange.Host(bytes), BLOCKS, BYTES, stride);
        var memory = RegionMemory.of(List.of(region), 1, KvLayout.LBHNC).getFirst();
        assertThat(memory.segments(new int[] {2, 3}))
                .extracting(segment -> segment.address() - bytes.address())
                .containsExactly(2 * stride, 3 * stride);
        assertThat(memory.segments(new int[] {2, 3}))
                .allMatch(segment -> segment.byteSize() == BYTES);
    }

    @Test
    void theSegmentsOfASingleBlockAreKept() {
        var memory = memory(KvLayout.LBNHC);
        assertThat(memory.segments(new int[] {5})).isSameAs(memory.segments(new int[] {5}));
    }

    /// The memory of a region may be longer than its blocks.
    @Test
    void aBlockThatTheRegionDoesNotHaveIsRefusedAlsoBehindOneThatItHas() {
        var memory = memory(KvLayout.LBNHC);
        assertThatThrownBy(() -> memory.segments(new int[] {BLOCKS - 1, BLOCKS}))
                .isInstanceOf(IndexOutOfBoundsException.class);
    }
}
