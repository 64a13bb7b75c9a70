// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.encoder;

import org.jspecify.annotations.Nullable;

import java.util.Comparator;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Predicate;
import java.util.stream.IntStream;

/// Which rows of the encoder cache belong to which item: each has one range without gaps, which it
/// keeps as long as it is cached.
///
/// Ranges are found first-fit, the largest first. What does not fit now does so when enough items
/// have gone, since whatever fits into the rows at all fits into empty ones.
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

    /// Where ranges of these sizes could begin, all at once.
    ///
    /// @param inTheWay which items keep their rows; the others count as gone
    /// @return null when there is no place for all of them
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
