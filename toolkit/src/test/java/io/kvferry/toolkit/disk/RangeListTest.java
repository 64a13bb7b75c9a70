// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Random;

/// Ranges of one call, and of several where the system takes less.
class RangeListTest {
    private static final int LIMIT = 8;

    @TempDir Path root;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());
    private final Arena arena = Arena.ofAuto();
    private final RangeList ranges = new RangeList(arena, LIMIT);

    @Test
    void whatBeginsWhereTheLastOneEndsMakesItLonger() {
        ranges.add(1000, 24);
        ranges.add(1024, 0);
        ranges.add(1024, 100);
        assertThat(ranges.count()).isEqualTo(1);
        ranges.add(1000, 24);
        ranges.add(5000, 1);
        assertThat(ranges.count()).isEqualTo(3);
        assertThat(ranges.bytes()).isEqualTo(149);
    }

    @Test
    void aClearedListDoesNotGoOnWhereItEnded() {
        ranges.add(1000, 24);
        ranges.clear();
        ranges.add(1024, 100);
        assertThat(ranges.count()).isEqualTo(1);
        assertThat(ranges.bytes()).isEqualTo(100);
    }

    /// Whatever is adjacent, and however little of it a call takes.
    @Test
    void writesTheBytesInOrderAlsoWhenCallsAreShort() throws IOException {
        assumeTrue(calls.gatherLimit() > 0, "needs libc of 64-bit Linux");
        var random = new Random(11);
        byte[] content = new byte[4096];
        random.nextBytes(content);
        var memory = arena.allocate(content.length).copyFrom(MemorySegment.ofArray(content));
        for (int i = 0; i < 200; i++) {
            var expected = new byte[LIMIT * content.length];
            int length = 0;
            int from = random.nextInt(content.length);
            ranges.clear();
            while (ranges.count() < LIMIT && length < content.length) {
                int bytes = random.nextInt(1, Math.min(300, content.length - from) + 1);
                ranges.add(memory.address() + from, bytes);
                System.arraycopy(content, from, expected, length, bytes);
                length += bytes;
                boolean adjacent = random.nextBoolean() && from + bytes < content.length;
                from = adjacent ? from + bytes : random.nextInt(content.length);
            }
            calls.mostPerCall = random.nextInt(1, 200);
            assertThat(ranges.bytes()).isEqualTo(length);
            Path file = root.resolve("f" + i);
            assertThat(written(file)).isEqualTo(Arrays.copyOf(expected, length));
        }
    }

    private byte[] written(Path file) throws IOException {
        int handle = calls.createNew(PathText.of(arena, file), false);
        assertThat(handle).isNotNegative();
        try {
            long at = 0;
            while (ranges.bytes() > 0) {
                long n = ranges.write(calls, handle, at);
                assertThat(n).isPositive();
                at += n;
            }
        } finally {
            calls.close(handle);
        }
        return Files.readAllBytes(file);
    }
}
