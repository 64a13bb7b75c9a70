// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// Blocks of loads that ended before their prefiller's writes did, for prefillers without
/// capabilities (vLLM's).
///
/// Late writes are refused while no load is open over the blocks. A load from another prefiller
/// without capabilities would admit them, since the transfer engine cannot attribute an unlabelled
/// write. So no such load opens over these blocks until the writes must have ended. Loads from
/// kvferry prefillers and local computation are not affected.
///
/// A block id stands for the memory of every group, since groups may share it.
///
/// Threading: the decode loop.
final class ExposedBlocks {
    private final Map<Integer, Fetch> lastLoads = new HashMap<>();

    /// The load has ended, and its window is closed.
    void add(Fetch fetch) {
        lastLoads.values().removeIf(earlier -> !earlier.isWritten());
        for (int[] ids : fetch.pull().blocks()) {
            for (int id : ids) {
                lastLoads.put(id, fetch);
            }
        }
    }

    /// Whether one of the blocks may still be written under an earlier load.
    boolean anyOf(List<int[]> groups) {
        if (lastLoads.isEmpty()) {
            return false;
        }
        for (int[] ids : groups) {
            for (int id : ids) {
                var earlier = lastLoads.get(id);
                if (earlier != null && earlier.isWritten()) {
                    return true;
                }
            }
        }
        return false;
    }
}
