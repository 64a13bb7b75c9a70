// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.staging;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

class BuddyAllocatorTest {
    static void invalid(ThrowingCallable call) {
        assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST));
    }

    /// All free blocks, by size: comparable before and after.
    private static List<List<Long>> free(BuddyAllocator buddies) {
        var lists = new ArrayList<List<Long>>();
        for (long size = buddies.smallest(); size <= buddies.capacity(); size *= 2) {
            lists.add(buddies.freeBlocks(size).stream().sorted().toList());
        }
        return lists;
    }

    @Test
    @DisplayName("B1 sizes are rounded up to powers of two, and all is one free block")
    void roundsUp() {
        var buddies = new BuddyAllocator(1000, 500);
        assertThat(buddies.capacity()).isEqualTo(1024);
        assertThat(buddies.smallest()).isEqualTo(512);
        assertThat(buddies.freeBlocks(1024)).containsExactly(0L);
        assertThat(buddies.freeBlocks(512)).isEmpty();
        assertThat(new BuddyAllocator(1, 1).capacity()).isEqualTo(1);
        assertThat(new BuddyAllocator(512, 512).capacity()).isEqualTo(512);
    }

    @Test
    @DisplayName("B2 sizes that are no sizes are refused")
    void refusesSizes() {
        for (long[] sizes : new long[][] {{0, 1}, {1, 0}, {-1, 1}, {512, 513}, {1L << 40, 1}}) {
            assertThatThrownBy(() -> new BuddyAllocator(sizes[0], sizes[1]))
                    .isInstanceOf(IllegalArgumentException.class);
        }
    }

    @Test
    @DisplayName("B3 the smallest block is split off the lower end")
    void splits() {
        var buddies = new BuddyAllocator(4096, 512);
        long offset = buddies.allocate(1);
        assertThat(offset).isZero();
        assertThat(buddies.size(offset)).isEqualTo(512);
        assertThat(buddies.freeBlocks(512)).containsExactly(512L);
        assertThat(buddies.freeBlocks(1024)).containsExactly(1024L);
        assertThat(buddies.freeBlocks(2048)).containsExactly(2048L);
        assertThat(buddies.freeBlocks(4096)).isEmpty();
    }

    @Test
    @DisplayName("B4 one byte more takes the next size")
    void takesTheNextSize() {
        var buddies = new BuddyAllocator(4096, 512);
        assertThat(buddies.size(buddies.allocate(513))).isEqualTo(1024);
        assertThat(buddies.size(buddies.allocate(512))).isEqualTo(512);
        assertThat(buddies.available()).isEqualTo(4096 - 1024 - 512);
    }

    @Test
    @DisplayName("B5 nothing, less than nothing and too much are told apart")
    void refusesRequests() {
        var buddies = new BuddyAllocator(4096, 512);
        invalid(() -> buddies.allocate(0));
        invalid(() -> buddies.allocate(-1));
        invalid(() -> buddies.allocate(4097));
        assertThatThrownBy(() -> buddies.allocate(0)).hasMessageContaining("0 bytes was asked");
        assertThatThrownBy(() -> buddies.allocate(4097)).hasMessageContaining("the pool has 4096");
        assertThat(buddies.freeBlocks(4096)).containsExactly(0L);
    }

    @Test
    @DisplayName("B6 a full range has no room, and stays as it is")
    void isFull() {
        var buddies = new BuddyAllocator(4096, 512);
        for (int i = 0; i < 8; i++) {
            assertThat(buddies.allocate(512)).isEqualTo(i * 512L);
        }
        assertThat(buddies.allocate(1)).isEqualTo(-1);
        assertThat(buddies.available()).isZero();
        buddies.free(1024);
        assertThat(buddies.allocate(512)).isEqualTo(1024);
    }

    @Test
    @DisplayName("B7 blocks freed in any order merge to one")
    void mergesInAnyOrder() {
        var order = new ArrayList<>(List.of(0, 1, 2, 3, 4, 5, 6, 7));
        assertThat(permutations(order, 0)).isEqualTo(40_320);
    }

    private static int permutations(List<Integer> order, int fixed) {
        if (fixed == order.size()) {
            var buddies = new BuddyAllocator(4096, 512);
            for (int i = 0; i < 8; i++) {
                buddies.allocate(512);
            }
            order.forEach(i -> buddies.free(i * 512L));
            assertThat(buddies.freeBlocks(4096)).containsExactly(0L);
            return 1;
        }
        int count = 0;
        for (int i = fixed; i < order.size(); i++) {
            Collections.swap(order, fixed, i);
            count += permutations(order, fixed + 1);
            Collections.swap(order, fixed, i);
        }
        return count;
    }

    @Test
    @DisplayName("B8 buddies merge at the lower offset, whichever is freed first")
    void mergesAtTheLowerOffset() {
        for (boolean upperFirst : new boolean[] {true, false}) {
            var buddies = new BuddyAllocator(4096, 512);
            long lower = buddies.allocate(512);
            long upper = buddies.allocate(512);
            long other = buddies.allocate(1024);
            buddies.free(upperFirst ? upper : lower);
            buddies.free(upperFirst ? lower : upper);
            assertThat(buddies.freeBlocks(1024)).containsExactly(0L);
            buddies.free(other);
            assertThat(buddies.freeBlocks(4096)).containsExactly(0L);
        }
    }

    @Test
    @DisplayName("B9 neighbours that are no buddies do not merge")
    void keepsNeighboursApart() {
        var buddies = new BuddyAllocator(2048, 512);
        for (int i = 0; i < 4; i++) {
            buddies.allocate(512);
        }
        buddies.free(512);
        buddies.free(1024);
        assertThat(buddies.freeBlocks(512)).containsExactly(1024L, 512L);
        assertThat(buddies.freeBlocks(1024)).isEmpty();
    }

    @Test
    @DisplayName("B10 what is no allocated block cannot be freed, and nothing changes")
    void refusesWrongOffsets() {
        var buddies = new BuddyAllocator(8192, 512);
        long big = buddies.allocate(2048);
        long gone = buddies.allocate(512);
        buddies.free(gone);
        var before = free(buddies);
        for (long wrong : new long[] {gone, big + 512, big + 1, 8192, -512, 1L << 40, 4096}) {
            invalid(() -> buddies.free(wrong));
            invalid(() -> buddies.size(wrong));
        }
        assertThat(free(buddies)).isEqualTo(before);
        assertThat(buddies.size(big)).isEqualTo(2048);
    }

    @Test
    @DisplayName("B14 offsets are multiples of their sizes, also beyond 32 bits")
    void alignsOffsets() {
        var buddies = new BuddyAllocator(32L << 30, 1 << 20);
        long sum = 0;
        for (long size = 1 << 20; size <= 8L << 30; size *= 2) {
            long offset = buddies.allocate(size);
            assertThat(offset % size).isZero();
            sum += size;
        }
        assertThat(buddies.available()).isEqualTo((32L << 30) - sum);
        long last = buddies.allocate(8L << 30);
        assertThat(last).isGreaterThan(1L << 32);
        assertThat(buddies.size(last)).isEqualTo(8L << 30);
    }
}
