// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

/// What was counted of a folder by all stores of this process on it together.
///
/// @param corrupt files of no use that a scan found
/// @param evicted blocks deleted to make room
/// @param reapedTemps unfinished files of dead writers deleted
record FolderCounts(long corrupt, long evicted, long reapedTemps) {
    static final FolderCounts NONE = new FolderCounts(0, 0, 0);

    static FolderCounts of(StoreCounters counters) {
        return new FolderCounts(
                counters.corrupt.sum(), counters.evicted.sum(), counters.reapedTemps.sum());
    }

    FolderCounts minus(FolderCounts other) {
        return new FolderCounts(
                corrupt - other.corrupt, evicted - other.evicted, reapedTemps - other.reapedTemps);
    }
}
