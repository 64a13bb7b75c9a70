// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.BitSet;
import java.util.Random;

/// Sets of addresses, against a bit for each byte.
class ExtentsTest {
    @Test
    void coverWhatWasAddedAndNothingElse() {
        var random = new Random(7);
        for (int round = 0; round < 200; round++) {
            var bits = new BitSet();
            var builder = new Extents.Builder();
            for (int i = random.nextInt(40); i >= 0; i--) {
                int from = random.nextInt(400);
                int bytes = 1 + random.nextInt(12);
                builder.add(1000 + from, bytes);
                bits.set(from, from + bytes);
            }
            var extents = builder.build();
            for (int from = 0; from < 420; from++) {
                for (int bytes = 1; bytes < 40; bytes++) {
                    assertThat(extents.covers(1000 + from, bytes))
                            .isEqualTo(bits.nextClearBit(from) >= from + bytes);
                    int next = bits.nextSetBit(from);
                    assertThat(extents.overlaps(1000 + from, bytes))
                            .isEqualTo(next >= 0 && next < from + bytes);
                }
            }
            long total = 0;
            for (int i = 0; i < extents.size(); i++) {
                total += extents.bytes(i);
                assertThat(bits.nextClearBit((int) (extents.address(i) - 1000)))
                        .as("merged as far as it goes")
                        .isEqualTo(extents.address(i) + extents.bytes(i) - 1000);
            }
            assertThat(total).isEqualTo(bits.cardinality());
        }
    }

    @Test
    void doNotWrapAround() {
        var extents = Extents.of(1000, 100);
        assertThat(extents.covers(1050, -1)).isFalse();
        assertThat(extents.covers(1050, Long.MAX_VALUE)).isFalse();
        assertThat(extents.covers(-1, 2)).isFalse();
        assertThat(extents.covers(999, 1)).isFalse();
        assertThat(extents.covers(1100, 1)).isFalse();
        assertThat(extents.overlaps(1050, -1)).isTrue();
        assertThat(extents.overlaps(1050, 0)).isFalse();
        assertThat(extents.overlaps(-1, 2)).isFalse();
        assertThat(extents.overlaps(-1, -1)).isFalse();
        assertThat(extents.overlaps(0, Long.MAX_VALUE)).isTrue();
        assertThat(extents.overlaps(1100, Long.MAX_VALUE)).isFalse();
    }
}
