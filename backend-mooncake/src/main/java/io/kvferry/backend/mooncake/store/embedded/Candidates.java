// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;

import org.jspecify.annotations.Nullable;

import java.util.Arrays;
import java.util.Objects;

/// Objects with the times by which they are chosen. Selection takes linear time: nothing is sorted.
///
/// Threading: one thread at a time.
final class Candidates {
    /// Room that is kept for the next run.
    private static final int KEPT = 1 << 20;

    private @Nullable StoredObject[] objects = new StoredObject[256];
    private long[] stamps = new long[256];
    private int first;
    private int end;

    void add(StoredObject object, long stamp) {
        if (end == stamps.length) {
            objects = Arrays.copyOf(objects, 2 * end);
            stamps = Arrays.copyOf(stamps, 2 * end);
        }
        objects[end] = object;
        stamps[end] = stamp;
        end++;
    }

    int size() {
        return end - first;
    }

    StoredObject object(int index) {
        return Objects.requireNonNull(objects[first + index]);
    }

    void dropFirst(int count) {
        first += count;
    }

    void clear() {
        if (stamps.length > KEPT) {
            objects = new StoredObject[256];
            stamps = new long[256];
        } else {
            Arrays.fill(objects, 0, end, null);
        }
        first = 0;
        end = 0;
    }

    /// Moves the `count` with the smallest stamps to the front, and all with the same stamp as the
    /// last of these.
    ///
    /// @param count from 1 to the size
    /// @return how many there are now in front
    int selectOldest(int count) {
        long cut = select(first + count - 1);
        int into = first;
        for (int i = first; i < end; i++) {
            if (stamps[i] <= cut) {
                swap(i, into++);
            }
        }
        return into - first;
    }

    /// The stamp that would be at `rank` if they were sorted.
    private long select(int rank) {
        int low = first;
        int high = end - 1;
        while (low < high) {
            long pivot = median(stamps[low], stamps[(low + high) >>> 1], stamps[high]);
            int less = low;
            int more = high;
            int at = low;
            while (at <= more) { // three parts, so that many equal stamps are no worst case
                if (stamps[at] < pivot) {
                    swap(at++, less++);
                } else if (stamps[at] > pivot) {
                    swap(at, more--);
                } else {
                    at++;
                }
            }
            if (rank < less) {
                high = less - 1;
            } else if (rank > more) {
                low = more + 1;
            } else {
                return pivot;
            }
        }
        return stamps[low];
    }

    private static long median(long a, long b, long c) {
        return Math.max(Math.min(a, b), Math.min(Math.max(a, b), c));
    }

    private void swap(int a, int b) {
        long stamp = stamps[a];
        stamps[a] = stamps[b];
        stamps[b] = stamp;
        StoredObject object = objects[a];
        objects[a] = objects[b];
        objects[b] = object;
    }
}
