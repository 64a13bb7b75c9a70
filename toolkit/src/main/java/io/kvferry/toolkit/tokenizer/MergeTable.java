// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.tokenizer;

import org.jspecify.annotations.Nullable;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.PriorityQueue;

/// Byte-pair merges by rank: joins the lowest-ranked neighbours of a piece until none is left.
///
/// A heap keeps this n log n, so that one long run of letters cannot stall a server.
final class MergeTable {
    private static final int MERGED = Integer.MIN_VALUE;

    private record Merge(int rank, int result) {}

    /// A possible merge at `left`, valid while both sides still are what they were when it was
    /// queued.
    private record Candidate(int rank, int left, int leftId, int right, int rightId, int result)
            implements Comparable<Candidate> {
        @Override
        public int compareTo(Candidate other) {
            return rank != other.rank
                    ? Integer.compare(rank, other.rank)
                    : Integer.compare(left, other.left);
        }
    }

    private final Map<Long, Merge> merges = new HashMap<>();

    /// Adds a merge of rank [#size], unless the pair has one already.
    void add(int left, int right, int result) {
        merges.putIfAbsent(key(left, right), new Merge(merges.size(), result));
    }

    int size() {
        return merges.size();
    }

    /// `ids` with all merges applied; a negative id is kept and never merged.
    int[] apply(int[] ids) {
        if (merges.isEmpty() || ids.length < 2) {
            return ids;
        }
        int[] id = ids.clone();
        int[] next = new int[id.length];
        int[] previous = new int[id.length];
        var queue = new PriorityQueue<Candidate>();
        for (int i = 0; i < id.length; i++) {
            next[i] = i + 1;
            previous[i] = i - 1;
        }
        for (int i = 0; i + 1 < id.length; i++) {
            offer(queue, id, i, i + 1);
        }
        while (!queue.isEmpty()) {
            Candidate best = queue.remove();
            if (id[best.left] != best.leftId
                    || id[best.right] != best.rightId
                    || next[best.left] != best.right) {
                continue;
            }
            id[best.left] = best.result;
            id[best.right] = MERGED;
            next[best.left] = next[best.right];
            if (next[best.left] < id.length) {
                previous[next[best.left]] = best.left;
                offer(queue, id, best.left, next[best.left]);
            }
            if (previous[best.left] >= 0) {
                offer(queue, id, previous[best.left], best.left);
            }
        }
        return Arrays.stream(id).filter(i -> i != MERGED).toArray();
    }

    private void offer(PriorityQueue<Candidate> queue, int[] id, int left, int right) {
        @Nullable Merge merge = merges.get(key(id[left], id[right]));
        if (merge != null) {
            queue.add(new Candidate(merge.rank, left, id[left], right, id[right], merge.result));
        }
    }

    private static long key(int left, int right) {
        return (long) left << 32 | Integer.toUnsignedLong(right);
    }
}
