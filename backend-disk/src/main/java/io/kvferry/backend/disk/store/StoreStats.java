// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.toolkit.disk.space.SpaceCatalog;

/// A moment's view of a store: counts since it was opened, then gauges. A block of the store is one
/// file, in which a connector may keep a run of KV blocks.
///
/// @param loads blocks read whole
/// @param loadedBytes payload of those
/// @param saves blocks written
/// @param savedBytes payload of those
/// @param alreadyPresent saves that found the block there
/// @param misses loads of blocks that were not there
/// @param corrupt blocks that failed a check, and files of no use; deleted where possible
/// @param incompatible loads of another size than saved
/// @param timeouts requests that missed their deadline
/// @param noSpace saves refused by quota, reserve or file system
/// @param failures requests that failed otherwise
/// @param refused requests refused because a queue was full or the store closed, and uses that were
///   not written to the file
/// @param evicted blocks deleted to make room, by the stores of this process on the folder
///   together; one of them reports it, the others 0
/// @param reapedTemps unfinished files of dead writers deleted
/// @param stalledNow threads that hang in the file system with requests whose deadline has passed
/// @param blocks blocks known in the folder
/// @param usedBytes bytes of their files
/// @param quotaBytes most bytes allowed
public record StoreStats(
        long loads,
        long loadedBytes,
        long saves,
        long savedBytes,
        long alreadyPresent,
        long misses,
        long corrupt,
        long incompatible,
        long timeouts,
        long noSpace,
        long failures,
        long refused,
        long evicted,
        long reapedTemps,
        long stalledNow,
        long blocks,
        long usedBytes,
        long quotaBytes) {

    static StoreStats of(
            StoreCounters counters,
            FolderCounts common,
            SpaceCatalog catalog,
            long stalledNow,
            long quotaBytes) {
        return new StoreStats(
                counters.loads.sum(),
                counters.loadedBytes.sum(),
                counters.saves.sum(),
                counters.savedBytes.sum(),
                counters.alreadyPresent.sum(),
                counters.misses.sum(),
                counters.corrupt.sum() + common.corrupt(),
                counters.incompatible.sum(),
                counters.timeouts.sum(),
                counters.noSpace.sum(),
                counters.failures.sum(),
                counters.refused.sum(),
                common.evicted(),
                common.reapedTemps(),
                stalledNow,
                catalog.files(),
                catalog.usedBytes(),
                quotaBytes);
    }
}
