// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.stream.LongStream;

class TransferFencesTest {
    private static final int MOST = 8;

    private final TransferFences fences = new TransferFences(MOST);

    @Test
    void aStrangerWhoFencesALotForgetsNoOtherHostsFence() {
        fences.refuse("peer", 1);
        LongStream.range(100, 100 + 10 * MOST).forEach(token -> fences.refuse("stranger", token));
        assertThat(fences.refuses(1)).isTrue();
        assertThat(refusedOf(100, 100 + 10 * MOST)).as("of the stranger").isEqualTo(MOST - 1);
        assertThat(fences.refuses(100 + 10 * MOST - 1)).as("the last").isTrue();
    }

    @Test
    void theOldestOfOneHostAreForgottenFirst() {
        LongStream.range(0, MOST + 3).forEach(token -> fences.refuse("peer", token));
        assertThat(refusedOf(0, 3)).isZero();
        assertThat(refusedOf(3, MOST + 3)).isEqualTo(MOST);
    }

    @Test
    void aFenceThatIsAskedForTwiceCountsOnce() {
        for (int i = 0; i < 3; i++) {
            LongStream.range(0, MOST).forEach(token -> fences.refuse("peer", token));
        }
        assertThat(refusedOf(0, MOST)).isEqualTo(MOST);
    }

    private long refusedOf(long from, long to) {
        return LongStream.range(from, to).filter(fences::refuses).count();
    }
}
