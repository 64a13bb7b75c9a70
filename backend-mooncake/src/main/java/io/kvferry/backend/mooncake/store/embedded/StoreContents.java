// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.StoreUsage;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore.Listed;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreParts;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/// Statistics of a store, summed over all objects at most once a second and only on request, and
/// the keys of one user.
///
/// Threading: any thread; [#refresh] one at a time.
final class StoreContents {
    private static final long USAGE_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final StoreParts parts;
    private final Puts puts;
    private volatile boolean wanted;
    private volatile @Nullable StoreUsage recent;
    private volatile long memoryObjects;
    private volatile long diskObjects;
    private long next;

    StoreContents(StoreParts parts, Puts puts) {
        this.parts = parts;
        this.puts = puts;
    }

    /// What the memory is used for. Looks at every object.
    StoreUsage usage() {
        long now = parts.time().now();
        var sum = new long[9];
        var inMemory = new long[1];
        parts.objects()
                .forEach(object -> {
                    if (object.state != StoredObject.State.COMPLETE) {
                        sum[6] += object.size;
                        return;
                    }
                    sum[0]++;
                    sum[8] += object.disk == null ? 0 : 1;
                    if (!object.hasMemory()) {
                        return;
                    }
                    inMemory[0]++;
                    sum[1] += object.size;
                    sum[2] += object.isLeased(now) ? object.size : 0;
                    sum[3] += object.isSoftPinned(now) ? object.size : 0;
                    sum[4] += object.hardPinned ? object.size : 0;
                    sum[5] += object.pins > 0 ? object.size : 0;
                    boolean free =
                            object.isEvictable()
                                    && !object.isLeased(now)
                                    && !object.isSoftPinned(now);
                    sum[7] += free ? object.size : 0;
                });
        memoryObjects = inMemory[0];
        diskObjects = sum[8];
        return new StoreUsage(
                parts.segments().capacity(),
                parts.segments().usedBytes(),
                parts.segments().largestFree(),
                sum[0],
                sum[1],
                sum[2],
                sum[3],
                sum[4],
                sum[5],
                sum[7],
                sum[6],
                puts.discardedBytes());
    }

    /// As [#usage], as it was a second ago or earlier; empty until the store's thread has found the
    /// time to look. Cheap.
    Optional<StoreUsage> recent() {
        wanted = true;
        return Optional.ofNullable(recent);
    }

    /// Looks, where that is wanted and has not been done for a second.
    void refresh() {
        long now = parts.time().now();
        if (wanted && now >= next) {
            wanted = false;
            next = now + USAGE_NANOS;
            recent = usage();
        }
    }

    /// Where the objects were as of [#recent], by the names of Mooncake's metrics.
    void addGauges(Map<String, Long> gauges) {
        gauges.put("kvferry_object_heap_bytes", parts.objects().heapBytes());
        gauges.put("mem_cache_nums_", memoryObjects);
        gauges.put("file_cache_nums_", diskObjects);
    }

    /// The keys of an identity that can be read. Looks at every object.
    List<String> keys(StoreIdentity identity) {
        var keys = new ArrayList<String>();
        parts.objects()
                .forEach(object -> {
                    if (object.state == StoredObject.State.COMPLETE
                            && object.identity.equals(identity)) {
                        keys.add(object.key);
                    }
                });
        return keys;
    }

    /// The same with their objects. Grants no lease.
    SortedMap<String, Listed> list(StoreIdentity identity) {
        var objectsByKey = new TreeMap<String, Listed>();
        parts.objects()
                .forEach(object -> {
                    if (object.state == StoredObject.State.COMPLETE
                            && object.identity.equals(identity)) {
                        objectsByKey.put(
                                object.key,
                                new Listed(object.size, object.hasMemory(), object.disk != null));
                    }
                });
        return objectsByKey;
    }
}
