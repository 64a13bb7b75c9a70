// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.offload;

import io.kvferry.backend.mooncake.store.embedded.objects.ObjectShard;
import io.kvferry.backend.mooncake.store.embedded.objects.Segment;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreParts;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject.State;
import io.kvferry.backend.mooncake.store.tier.DiskTier;

import java.lang.foreign.MemorySegment;
import java.util.List;

/// Keeps in memory again what is read from disk often, where there is room.
///
/// Threading: any thread.
public final class Promotions {
    private final StoreParts parts;
    private final DiskTier tier;

    public Promotions(StoreParts parts, DiskTier tier) {
        this.parts = parts;
        this.tier = tier;
    }

    /// An object was read from disk, and is pinned by the caller.
    ///
    /// @param value its bytes
    public void read(StoredObject object, MemorySegment value) {
        tier.counters().hitBytes.add(object.size);
        int after = tier.config().promoteAfter();
        if (after == 0 || !isDue(object, after)) {
            return;
        }
        var place = object.copyOf();
        long high = (long) (parts.config().highWatermark() * parts.segments().capacity());
        if (parts.segments().usedBytes() + object.size > high
                || !parts.segments().place(place, object.size, List.of())) {
            tier.counters().promotionsWithoutRoom.increment();
            return;
        }
        Segment segment = place.place();
        boolean attached = false;
        try {
            MemorySegment.copy(value, 0, segment.memory(), place.offset, object.size);
            attached = attach(object, place, segment);
        } finally {
            if (!attached) {
                place.dropMemory();
            }
        }
        if (attached) {
            tier.counters().promotions.increment();
            tier.counters().promotedBytes.add(object.size);
        }
    }

    private boolean isDue(StoredObject object, int after) {
        ObjectShard shard = parts.objects().shardOf(object.hash);
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

    /// Attaches only while the segment is mounted. Unmounting scans the objects of the segment
    /// afterwards, and finds an object that was attached before.
    private boolean attach(StoredObject object, StoredObject place, Segment segment) {
        ObjectShard shard = parts.objects().shardOf(object.hash);
        shard.lock();
        try {
            if (object.state != State.COMPLETE || object.hasMemory() || !segment.isMounted()) {
                return false;
            }
            object.takePlaceOf(place);
            return true;
        } finally {
            shard.unlock();
        }
    }
}
