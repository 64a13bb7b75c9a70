// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.StoreBatch;

import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.SplittableRandom;
import java.util.zip.CRC32C;

/// Sums of batches, of one thread and of several.
class BatchSumsTest {
    private static final int MEMORY = 24 << 20;
    private static final int ROUNDS = 40;

    @Test
    void sumsWhatIsAskedOfEachKeyOverItsPieces() {
        try (var arena = Arena.ofShared()) {
            MemorySegment memory = arena.allocate(MEMORY, 64);
            var random = new SplittableRandom(7);
            for (long at = 0; at < MEMORY; at += Long.BYTES) {
                memory.set(ValueLayout.JAVA_LONG, at, random.nextLong());
            }
            for (int round = 0; round < ROUNDS; round++) {
                int most = round % 2 == 0 ? 1 << 16 : MEMORY / 4;
                check(memory, random, 1 + random.nextInt(8), most);
            }
        }
    }

    @Test
    void whenItIsCancelledNothingIsReadAnyMore() {
        for (int round = 0; round < ROUNDS; round++) {
            var bytes = new long[6];
            var batch = new StoreBatch();
            try (var arena = Arena.ofShared()) {
                MemorySegment memory = arena.allocate(MEMORY, 64);
                for (int i = 0; i < bytes.length; i++) {
                    bytes[i] = MEMORY / bytes.length;
                    batch.add("key " + i).buffer(memory, i * bytes[i], bytes[i]);
                }
                var sums = BatchSums.begin(batch, 0, bytes);
                if (round % 2 == 0) {
                    sums.await();
                }
                sums.cancel();
            } // reading it would end the process from here on
        }
    }

    private static void check(MemorySegment memory, SplittableRandom random, int keys, int most) {
        var batch = new StoreBatch();
        int from = random.nextInt(2);
        for (int i = 0; i < from; i++) {
            batch.add("before").buffer(memory, 0, 8);
        }
        var bytes = new long[keys];
        var expected = new int[keys];
        for (int i = 0; i < keys; i++) {
            batch.add("key " + i);
            var crc = new CRC32C();
            long left = random.nextInt(4) == 0 ? -704 : random.nextInt(most);
            bytes[i] = left;
            for (int piece = 0; piece < 3; piece++) {
                int length = random.nextInt(1, most);
                int offset = random.nextInt(MEMORY - length);
                batch.buffer(memory, offset, length);
                int part = Math.clamp(left, 0, length);
                crc.update(memory.asSlice(offset, part).asByteBuffer());
                left -= part;
            }
            bytes[i] -= Math.max(0, left);
            expected[i] = bytes[i] > 0 ? (int) crc.getValue() : 0;
        }
        assertThat(BatchSums.begin(batch, from, bytes).await()).containsExactly(expected);
    }
}
