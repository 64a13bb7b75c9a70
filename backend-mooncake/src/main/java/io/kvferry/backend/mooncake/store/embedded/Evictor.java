// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.embedded.objects.ObjectGroup;
import io.kvferry.backend.mooncake.store.embedded.objects.ObjectShard;
import io.kvferry.backend.mooncake.store.embedded.objects.ObjectTable;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.List;

/// Makes room: by count, in two passes, oldest leases first, as Mooncake's master does.
///
/// Of all objects that could be freed (leased ones counted), a first pass takes the share `target`
/// from those without lease and soft pin; a second one makes up for a part of what was missing, if
/// need be from soft-pinned ones.
///
/// The heap is made room on in the same way. What goes for it goes as a whole, and what has a copy
/// on disk goes with its bucket: see [DiskEvictor].
///
/// Threading: one run at a time.
final class Evictor {
    private static final Logger LOG = LoggerFactory.getLogger(Evictor.class);

    private final EmbeddedStore store;
    private final double high;
    private final double ratio;
    private final Candidates plain = new Candidates();
    private final Candidates softPinned = new Candidates();
    private volatile boolean wanted;
    private volatile boolean heapWanted;

    /// Of this run: whether the heap is crowded, and whether nothing else is.
    private boolean forHeap;

    private boolean forHeapAlone;
    private long base;
    private long freedBytes;

    /// Objects of this run that go when they are on disk.
    private long queued;

    Evictor(EmbeddedStore store) {
        this.store = store;
        this.high = store.config.highWatermark();
        this.ratio = store.config.evictionRatio();
    }

    /// A put found no room.
    void want() {
        wanted = true;
    }

    /// A put found no room on the heap.
    void wantHeap() {
        heapWanted = true;
    }

    private boolean isHeapCrowded() {
        return heapWanted || store.heapShare() > high;
    }

    boolean isDue() {
        long capacity = store.segments.capacity();
        return capacity > 0
                && (stayingBytes() > high * capacity
                        || isHeapCrowded()
                        || (wanted && ratio > 0 && store.offloads.evictingBytes() == 0));
    }

    /// Memory in use, without that which is freed as soon as its objects are on disk.
    private long stayingBytes() {
        return store.segments.usedBytes() - store.offloads.evictingBytes();
    }

    /// Evicts once, whether it is due or not.
    ///
    /// @return objects that are gone
    synchronized long run() {
        double used = (double) stayingBytes() / Math.max(1, store.segments.capacity());
        forHeap = isHeapCrowded();
        forHeapAlone = forHeap && used <= high && !wanted;
        used = forHeap ? Math.max(used, store.heapShare()) : used;
        double target = Math.max(ratio, used - high + ratio);
        double lower = Math.max(target / 2, used - high);
        LOG.debug(
                "[EVICT-TRIGGER] memory_ratio={} high_watermark={} need_mem_eviction={}"
                        + " eviction_ratio={}",
                used,
                high,
                wanted,
                ratio);
        long now = store.time.now();
        try {
            scan(now);
            if (base == 0) {
                wanted = false;
                heapWanted = false;
                store.puts.releaseDue();
                return 0;
            }
            store.counters.evictionAttempts.increment();
            long evicted = take(plain, (long) Math.ceil(base * target), now, false);
            long released = store.puts.releaseDue();
            long missing = (long) Math.ceil(base * lower) - evicted - released;
            missing = Math.min(missing, (long) plain.size() + softPinned.size());
            if (missing > 0) {
                evicted += secondPass(missing, now);
            }
            if (evicted + released > 0) {
                wanted = false;
                heapWanted = false;
            }
            evicted -= queued;
            if (evicted > 0) {
                store.counters.evictions.increment();
                store.counters.evictedKeys.add(evicted);
                store.counters.evictedBytes.add(freedBytes);
            }
            LOG.debug(
                    "[EVICT-DONE] evicted={} bytes={} to_disk={} released={} of base={}",
                    evicted,
                    freedBytes,
                    queued,
                    released,
                    base);
            return evicted;
        } finally {
            plain.clear();
            softPinned.clear();
        }
    }

    private long secondPass(long missing, long now) {
        long fromPlain = Math.min(missing, plain.size());
        long evicted = take(plain, fromPlain, now, true);
        if (missing > fromPlain && store.config.evictSoftPinned()) {
            evicted += take(softPinned, missing - evicted, now, true);
        }
        return evicted;
    }

    private void scan(long now) {
        base = 0;
        freedBytes = 0;
        queued = 0;
        store.objects.forEach(object -> {
            if (!object.isEvictable() || (forHeapAlone && object.disk != null)) {
                return;
            }
            base++;
            if (!object.isLeased(now)) {
                var into = object.isSoftPinned(now) ? softPinned : plain;
                into.add(object, object.effectiveLease());
            }
        });
    }

    /// Evicts the `count` oldest and all as old as the last of them; goes on with the next ones for
    /// those that cannot be evicted any more.
    private long take(Candidates from, long count, long now, boolean softPinnedToo) {
        long evicted = 0;
        while (evicted < count && from.size() > 0) {
            int chosen = from.selectOldest((int) Math.min(count - evicted, from.size()));
            for (int i = 0; i < chosen; i++) {
                StoredObject object = from.object(i);
                evicted +=
                        object.group == null
                                ? evict(object, now, softPinnedToo)
                                : evictGroup(object.group, now, softPinnedToo);
            }
            from.dropFirst(chosen);
        }
        return evicted;
    }

    private long evict(StoredObject object, long now, boolean softPinnedToo) {
        ObjectShard shard = store.objects.shardOf(object.hash);
        shard.lock();
        try {
            return evictLocked(object, now, softPinnedToo);
        } finally {
            shard.unlock();
        }
    }

    private long evictLocked(StoredObject object, long now, boolean softPinnedToo) {
        if (!object.isEvictable()
                || object.isLeased(now)
                || (!softPinnedToo && object.isSoftPinned(now))) {
            return 0;
        }
        if (object.disk != null) {
            object.dropMemory();
        } else if (!forHeap && store.offloads.evict(object)) {
            queued++;
            return 1;
        } else {
            store.objects.erase(object);
            object.freeMemory();
        }
        freedBytes += object.size;
        return 1;
    }

    /// Evicts what can be evicted of a group, unless one of its members is leased.
    private long evictGroup(ObjectGroup group, long now, boolean softPinnedToo) {
        List<StoredObject> members = group.members();
        var shards =
                members.stream()
                        .mapToInt(member -> ObjectTable.shardIndex(member.hash))
                        .distinct()
                        .sorted()
                        .mapToObj(store.objects::shard)
                        .toList();
        var locked = new ArrayList<ObjectShard>(shards.size());
        try {
            for (ObjectShard shard : shards) {
                shard.lock();
                locked.add(shard);
            }
            long evicted = 0;
            if (members.equals(group.members())
                    && members.stream().noneMatch(member -> member.isLeased(now))) {
                for (StoredObject member : members) {
                    evicted += evictLocked(member, now, softPinnedToo);
                }
            }
            return evicted;
        } finally {
            for (int i = 0; i < locked.size(); i++) { // an iterator may find no memory
                locked.get(i).unlock();
            }
        }
    }
}
