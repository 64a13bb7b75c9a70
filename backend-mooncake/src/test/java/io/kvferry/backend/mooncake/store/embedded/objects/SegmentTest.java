// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.memory.OffsetAllocator;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;

import org.junit.jupiter.api.Test;

/// How long the memory of a segment stays.
class SegmentTest {
    private static final long SIZE = 1000;

    @Test
    void memoryIsFreedWithTheLastCopy() {
        var segment = new Segment("s", 0, 10 * SIZE, SegmentMemory.PRIVATE);
        int handle = segment.allocate(SIZE);
        segment.unmount();
        assertThat(segment.isFreed()).isFalse();
        assertThat(segment.allocate(SIZE)).isEqualTo(OffsetAllocator.NONE);
        segment.release(handle);
        assertThat(segment.isFreed()).isTrue();
    }
}
