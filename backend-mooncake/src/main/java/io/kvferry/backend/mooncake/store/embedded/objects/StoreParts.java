// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

/// What everything that works on the objects of one store shares.
///
/// @param segments where they lie in memory
public record StoreParts(
        StoreConfig config,
        StoreTime time,
        StoreCounters counters,
        SegmentTable segments,
        ObjectTable objects) {
    /// Of an empty store.
    public static StoreParts of(StoreConfig config, SegmentTable segments) {
        return new StoreParts(
                config,
                new StoreTime(config.clock()),
                new StoreCounters(),
                segments,
                new ObjectTable());
    }

    /// Part of its budget that the objects cost on the heap.
    public double heapShare() {
        return (double) objects.heapBytes() / config.heapBytes();
    }
}
