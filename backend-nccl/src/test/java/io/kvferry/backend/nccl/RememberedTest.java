// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.Test;

class RememberedTest {
    private static final int LONG = 4096;

    private static String longId(long number) {
        return ("%0" + LONG + "d").formatted(number);
    }

    @Test
    void keepsSoManyBytesAndNoMoreAndTheLastOnes() {
        var ids = Remembered.<Boolean>byText();
        int put = 20_000;
        for (int i = 0; i < put; i++) {
            ids.put(longId(i), true);
        }
        long characters = (long) ids.size() * LONG;
        assertThat(Character.BYTES * characters).isLessThanOrEqualTo(Remembered.MOST_BYTES);
        assertThat(ids.size()).isGreaterThan(500);
        assertThat(ids.contains(longId(put - 1))).isTrue();
        assertThat(ids.contains(longId(0))).isFalse();
    }

    @Test
    void ordinaryIdsAreBoundedInNumber() {
        var ids = Remembered.transfers();
        for (int i = 0; i < 20_000; i++) {
            ids.put(TransferId.load("request-" + i, 0), true);
        }
        assertThat(ids.size()).isEqualTo(1 << 14);
    }

    /// A peer may say why, too, and say it again.
    @Test
    void theReasonCountsAndIsCountedOnce() {
        var ended = Remembered.failures();
        var why = new Failure(ErrorCode.CANCELLED, "x".repeat(1 << 20));
        for (int i = 0; i < 100; i++) {
            ended.put("the same", why);
        }
        assertThat(ended.size()).isEqualTo(1);
        ended.put("another", why);
        assertThat(ended.size()).isEqualTo(2);
        for (int i = 0; i < 100; i++) {
            ended.put("id " + i, why);
        }
        assertThat(ended.size()).isLessThan(5);
    }

    @Test
    void whatIsRemovedLeavesItsRoom() {
        var ids = Remembered.<Long>byText();
        for (long i = 0; i < 20_000; i++) {
            var id = longId(i);
            ids.put(id, i);
            assertThat(ids.get(id)).isEqualTo(i);
            ids.remove(id);
        }
        assertThat(ids.size()).isZero();
        ids.put("kept", 1L);
        for (int i = 0; i < 500; i++) {
            ids.put(longId(i), 1L);
        }
        assertThat(ids.contains("kept")).isTrue();
    }
}
