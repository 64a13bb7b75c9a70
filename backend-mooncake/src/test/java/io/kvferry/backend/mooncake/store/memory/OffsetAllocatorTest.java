// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.memory;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.SplittableRandom;
import java.util.TreeMap;

class OffsetAllocatorTest {
    @Test
    void rangesNeverOverlapAndMergeAgain() {
        for (int seed = 0; seed < 200; seed++) {
            var random = new SplittableRandom(seed);
            long capacity = 64L * (1 + random.nextInt(1 << 14));
            var allocator = new OffsetAllocator(capacity, 4);
            var taken = new TreeMap<Long, Integer>();
            long used = 0;
            for (int op = 0; op < 500; op++) {
                if (random.nextInt(3) > 0 || taken.isEmpty()) {
                    long bytes = 1 + random.nextLong(Math.max(2, capacity / (1 + op % 40)));
                    int handle = allocator.allocate(bytes);
                    if (handle != OffsetAllocator.NONE) {
                        long at = allocator.offset(handle);
                        long end = at + allocator.length(handle);
                        assertThat(allocator.length(handle)).isGreaterThanOrEqualTo(bytes);
                        assertThat(end).as("seed %d", seed).isLessThanOrEqualTo(capacity);
                        var below = taken.floorEntry(at);
                        if (below != null) {
                            assertThat(below.getKey() + allocator.length(below.getValue()))
                                    .isLessThanOrEqualTo(at);
                        }
                        var above = taken.higherKey(at);
                        assertThat(above == null || end <= above).isTrue();
                        taken.put(at, handle);
                        used += allocator.length(handle);
                    }
                } else {
                    var keys = new ArrayList<>(taken.keySet());
                    long at = keys.get(random.nextInt(keys.size()));
                    int handle = Objects.requireNonNull(taken.remove(at));
                    used -= allocator.length(handle);
                    allocator.release(handle);
                }
                assertThat(allocator.usedBytes()).isEqualTo(used);
                assertThat(allocator.ranges()).isEqualTo(taken.size());
            }
            taken.values().forEach(allocator::release);
            assertThat(allocator.largestFree()).as("seed %d", seed).isEqualTo(capacity);
            assertThat(allocator.allocate(capacity)).isNotEqualTo(OffsetAllocator.NONE);
            assertThat(allocator.largestFree()).isZero();
        }
    }

    @Test
    void equalSizesFillIt() {
        for (long size : new long[] {64, 4096, 100_000, 262_144, 262_144 + 17, 3198 * 1024}) {
            long rounded = (size + 63) & -64;
            var allocator = new OffsetAllocator(rounded * 100);
            List<Integer> handles = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                handles.add(allocator.allocate(size));
            }
            assertThat(handles).doesNotContain(OffsetAllocator.NONE);
            assertThat(allocator.allocate(1)).isEqualTo(OffsetAllocator.NONE);
            for (int i = 0; i < 100; i += 2) {
                allocator.release(handles.get(i));
            }
            for (int i = 0; i < 50; i++) {
                assertThat(allocator.allocate(size)).isNotEqualTo(OffsetAllocator.NONE);
            }
        }
    }

    @Test
    void refusesNothingAndTooMuch() {
        var allocator = new OffsetAllocator(1000);
        assertThat(allocator.capacity()).isEqualTo(960);
        assertThat(allocator.allocate(0)).isEqualTo(OffsetAllocator.NONE);
        assertThat(allocator.allocate(961)).isEqualTo(OffsetAllocator.NONE);
        assertThat(allocator.allocate(960)).isNotEqualTo(OffsetAllocator.NONE);
    }
}
