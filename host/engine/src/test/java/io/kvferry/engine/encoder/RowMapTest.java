// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.encoder;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Random;

/// Rows of the encoder cache, against a bit per row.
class RowMapTest {
    private static final int TOTAL = 64;

    private static EncoderIndex.Item item(int row, int rows) {
        return new EncoderIndex.Item(row + "+" + rows, row, rows);
    }

    private static boolean hasGap(BitSet used, int size) {
        for (int row = used.nextClearBit(0); row < TOTAL; row = used.nextClearBit(row)) {
            int end = used.nextSetBit(row);
            int gap = (end < 0 ? TOTAL : end) - row;
            if (gap >= size) {
                return true;
            }
            row += gap;
        }
        return false;
    }

    @Test
    void findsAGapWheneverThereIsOneAndNeverOneThatIsTaken() {
        var random = new Random(7);
        for (int round = 0; round < 200; round++) {
            var rows = new RowMap(TOTAL);
            var used = new BitSet();
            List<EncoderIndex.Item> items = new ArrayList<>();
            for (int i = 0; i < 60; i++) {
                int size = 1 + random.nextInt(20);
                var found = rows.find(new int[] {size}, _ -> true);
                assertThat(found != null).isEqualTo(hasGap(used, size));
                if (found != null) {
                    assertThat(used.get(found[0], found[0] + size).isEmpty()).isTrue();
                    var item = item(found[0], size);
                    items.add(item);
                    rows.add(item);
                    used.set(found[0], found[0] + size);
                } else {
                    var gone = items.remove(random.nextInt(items.size()));
                    rows.remove(gone);
                    used.clear(gone.row, gone.row + gone.rows);
                }
            }
        }
    }

    @Test
    void severalRangesDoNotOverlapAndAreFoundTogetherOrNotAtAll() {
        var rows = new RowMap(10);
        var middle = item(4, 2);
        rows.add(middle);
        assertThat(rows.find(new int[] {4, 4}, _ -> true)).containsExactly(0, 6);
        assertThat(rows.find(new int[] {3, 1, 2}, _ -> true)).containsExactly(0, 3, 6);
        assertThat(rows.find(new int[] {4, 5}, _ -> true)).isNull();
        assertThat(rows.find(new int[] {5}, _ -> true)).isNull();
        assertThat(rows.find(new int[] {5, 5}, item -> item != middle)).containsExactly(0, 5);
        assertThat(rows.find(new int[] {11}, _ -> false)).isNull();
    }
}
