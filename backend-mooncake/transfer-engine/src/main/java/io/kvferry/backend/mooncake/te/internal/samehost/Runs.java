// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import java.util.BitSet;

/// Hands out runs of adjacent places.
///
/// Threading: one thread at a time.
final class Runs {
    private static final int GRAIN = 16;

    private final BitSet used = new BitSet();
    private final int grains;

    Runs(int places) {
        grains = places / GRAIN;
    }

    /// The first of `count` places, -1 when there is no such run.
    int take(int count) {
        int needed = Math.ceilDiv(count, GRAIN);
        for (int from = used.nextClearBit(0); from + needed <= grains; ) {
            int end = used.nextSetBit(from);
            if (end < 0 || end - from >= needed) {
                used.set(from, from + needed);
                return from * GRAIN;
            }
            from = used.nextClearBit(end);
        }
        return -1;
    }

    /// @param first and count as they were taken
    void give(int first, int count) {
        used.clear(first / GRAIN, first / GRAIN + Math.ceilDiv(count, GRAIN));
    }
}
