// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.embedded.StoredObject.State;
import io.kvferry.backend.mooncake.store.tier.DiskTier;

import java.lang.foreign.MemorySegment;
import java.util.List;

/// Keeps in memory again what is read from disk often, where there is room.
///
/// Threading: any thread.
final class Promotions {
    private final EmbeddedStore store;
    private final DiskTier tier;

    Promotions(EmbeddedStore store, DiskTier tier) {
        this.store = store;
        this.tier = tier;
    }

    /// An object was read from disk, and is pinned by the caller.
    ///
    /// @param value its bytes
    void read(StoredObject object, MemorySegment value) {
        tier.counters().hitBytes.add(object.size);
        int after = tier.config().promoteAfter();
        if (after == 0 || !isDue(object, after)) {
            return;
        }
        var place = object.copyOf();
        long high = (long) (store.config.highWatermark() * store.segments.capacity());
        if (store.segments.usedBytes() + object.size > high
                || !store.segments.place(place, object.size, List.of())) {
            tier.counters().promotionsWithoutRoom.increment();
            return;
        }
        Segment segment = place.place();
        MemorySegment.copy(value, 0, segment.memory(), place.offset, object.size);
        if (attach(object, place, segment)) {
            tier.counters().promotions.increment();
            tier.counters().promotedBytes.add(object.size);
        } else {
            place.dropMemory();
        }
    }

    private boolean isDue(StoredObject object, int after) {
        ObjectShard shard = store.objects.shardOf(object.hash);
        shard.lock();
        try {
            object.diskReads++;
            return object.diskReads >= after
                    && object.state == State.COMPLETE
                    && !object.hasMemory();
        } finally {
            shard.unlock();
        }
    }

    /// A segment that is unmounted just now is looked through after it has left the table, so an
    /// object that gets memory in it before that is found there.
    private boolean attach(StoredObject object, StoredObject place, Segment segment) {
        ObjectShard shard = store.objects.shardOf(object.hash);
        shard.lock();
        try {
            if (object.state != State.COMPLETE
                    || object.hasMemory()
                    || !store.segments.all().contains(segment)) {
                return false;
            }
            object.segment = segment;
            object.offset = place.offset;
            object.handle = place.handle;
            return true;
        } finally {
            shard.unlock();
        }
    }
}
