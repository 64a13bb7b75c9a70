// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.encoder;

import org.jspecify.annotations.Nullable;

import java.util.Comparator;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Predicate;
import java.util.stream.IntStream;

/// The rows of the encoder cache by item. Each item has one contiguous range, which it keeps as
/// long as it is cached.
///
/// Ranges are allocated first-fit, the largest first. A request that does not fit now will fit once
/// enough items are gone, if it fits into the empty cache at all.
///
/// Threading: scheduler thread only.
final class RowMap {
    private final int total;
    private final TreeMap<Integer, EncoderIndex.Item> byRow = new TreeMap<>();

    RowMap(int total) {
        this.total = total;
    }

    int total() {
        return total;
    }

    /// Finds first rows for ranges of these sizes, for all of them together.
    ///
    /// @param inTheWay which items keep their rows; the rows of others count as free
    /// @return null when they do not all fit
    int @Nullable [] find(int[] sizes, Predicate<EncoderIndex.Item> inTheWay) {
        var gaps = gaps(inTheWay);
        var found = new int[sizes.length];
        for (int i : largestFirst(sizes)) {
            int row = take(gaps, sizes[i]);
            if (row < 0) {
                return null;
            }
            found[i] = row;
        }
        return found;
    }

    private static int[] largestFirst(int[] sizes) {
        return IntStream.range(0, sizes.length)
                .boxed()
                .sorted(Comparator.comparingInt(i -> -sizes[i]))
                .mapToInt(Integer::intValue)
                .toArray();
    }

    /// Length by first row.
    private TreeMap<Integer, Integer> gaps(Predicate<EncoderIndex.Item> inTheWay) {
        var gaps = new TreeMap<Integer, Integer>();
        int free = 0;
        for (var item : byRow.values()) {
            if (inTheWay.test(item)) {
                if (item.row > free) {
                    gaps.put(free, item.row - free);
                }
                free = item.row + item.rows;
            }
        }
        if (total > free) {
            gaps.put(free, total - free);
        }
        return gaps;
    }

    private static int take(TreeMap<Integer, Integer> gaps, int size) {
        for (Map.Entry<Integer, Integer> gap : gaps.entrySet()) {
            int row = gap.getKey();
            int length = gap.getValue();
            if (length >= size) {
                gaps.remove(row);
                if (length > size) {
                    gaps.put(row + size, length - size);
                }
                return row;
            }
        }
        return -1;
    }

    void add(EncoderIndex.Item item) {
        byRow.put(item.row, item);
    }

    void remove(EncoderIndex.Item item) {
        byRow.remove(item.row, item);
    }

    void clear() {
        byRow.clear();
    }
}
