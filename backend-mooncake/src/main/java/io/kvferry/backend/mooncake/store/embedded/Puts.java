// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.ObjectGroup;
import io.kvferry.backend.mooncake.store.embedded.objects.ObjectShard;
import io.kvferry.backend.mooncake.store.embedded.objects.ObjectTable;
import io.kvferry.backend.mooncake.store.embedded.objects.Segment;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreTime;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject.State;
import io.kvferry.backend.mooncake.store.tier.DiskObject;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Predicate;

/// The states of puts: started, ended or revoked, or replaced by a later one after a while.
///
/// Threading: any thread.
final class Puts {
    /// Interval between two scans for abandoned puts.
    private static final long SWEEP_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final EmbeddedStore store;
    private final long discardAfter;
    private final long releaseAfter;
    private final AtomicLong numbers = new AtomicLong();
    private final AtomicInteger open = new AtomicInteger();
    private final List<StoredObject> discarded = new ArrayList<>();
    private long nextSweep;

    Puts(EmbeddedStore store) {
        this.store = store;
        this.discardAfter = StoreTime.nanos(store.config.putDiscard());
        this.releaseAfter = StoreTime.nanos(store.config.putRelease());
    }

    /// Takes the object that a put makes, in state PROCESSING.
    interface Begun {
        void accept(StoredObject object);
    }

    /// Starts a put.
    ///
    /// @param pin whether the caller writes right away and unpins after that
    /// @param begun gets the object before any other thread can use it
    /// @return 0 or a code
    int start(
            EmbeddedClient client,
            String key,
            long size,
            @Nullable String groupName,
            PutOptions options,
            boolean pin,
            Begun begun) {
        store.counters.putStarts.increment();
        int code = tryStart(client, key, size, groupName, options, pin, begun);
        if (code != 0) {
            store.counters.putStartFailures.increment();
        }
        return code;
    }

    private int tryStart(
            EmbeddedClient client,
            String key,
            long size,
            @Nullable String groupName,
            PutOptions options,
            boolean pin,
            Begun begun) {
        if (key.isEmpty() || size <= 0 || !options.areValid()) {
            return StoreCode.INVALID_PARAMS.number();
        }
        int hash = ObjectTable.hash(client.identityHash(), key);
        ObjectShard shard = store.objects.shardOf(hash);
        shard.lock();
        try {
            if (store.isClosed()) {
                return StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number();
            }
            long now = store.time.now();
            StoredObject known = shard.find(client.identity(), key, hash);
            if (known != null && (known.state == State.COMPLETE || !isStale(known, now))) {
                return StoreCode.OBJECT_ALREADY_EXISTS.number();
            }
            if (known != null) {
                discard(known);
            }
            if (!hasHeap(key, groupName)) {
                store.counters.allocFailures.increment();
                store.wantHeap();
                client.foundNoHeap(StoredObject.heapBytes(key, groupName));
                return StoreCode.NO_AVAILABLE_HANDLE.number();
            }
            StoredObject object =
                    object(
                            client.identity(),
                            client.number(),
                            key,
                            hash,
                            size,
                            groupName,
                            options.hardPin(),
                            now);
            if (!begin(object, options, pin, begun)) {
                return noRoom(client, size, options);
            }
            return 0;
        } finally {
            shard.unlock();
        }
    }

    /// Allocates room for an object, adds the object to the table and passes it to `begun`. If any
    /// step fails, also with an OutOfMemoryError, all of them are undone. The caller holds the lock
    /// of the object's shard.
    ///
    /// @return false when there is no room
    private boolean begin(StoredObject object, PutOptions options, boolean pin, Begun begun) {
        boolean added = false;
        boolean done = false;
        try {
            object.softPin = StoreTime.nanos(options.softPin());
            if (store.segments.place(object, object.size, options.preferredSegments())) {
                store.objects.add(object);
                added = true;
                begun.accept(object);
                if (options.replicas() > 1) {
                    store.counters.partialAllocations.increment();
                }
                object.pins = pin ? 1 : 0;
                open.incrementAndGet();
                done = true;
            }
        } finally {
            if (added && !done) {
                store.objects.erase(object);
            } else if (!added) {
                store.objects.leaveGroup(object);
            }
            if (!done) {
                object.freeMemory();
            }
        }
        return done;
    }

    private boolean hasHeap(String key, @Nullable String group) {
        long more = StoredObject.heapBytes(key, group);
        more += group == null ? 0 : ObjectGroup.heapBytes(group);
        return store.objects.heapBytes() + more <= store.config.heapBytes();
    }

    private boolean isStale(StoredObject put, long now) {
        return now - put.putStart > discardAfter;
    }

    private StoredObject object(
            StoreIdentity identity,
            long writer,
            String key,
            int hash,
            long size,
            @Nullable String groupName,
            boolean hardPin,
            long now) {
        while (true) {
            ObjectGroup group =
                    groupName == null
                            ? null
                            : store.objects.group(new ObjectGroup.Name(identity, groupName));
            boolean joined = false;
            try {
                var object =
                        new StoredObject(
                                identity,
                                key,
                                hash,
                                size,
                                writer,
                                numbers.incrementAndGet(),
                                now,
                                hardPin,
                                group);
                joined = group == null || group.add(object);
                if (joined) {
                    return object;
                }
            } finally {
                if (!joined && group != null) { // it is empty or has gone
                    store.objects.dropEmpty(group);
                }
            }
        }
    }

    /// An object of which only a copy on disk is left, in no table yet.
    StoredObject recovered(DiskObject copy, long now) {
        int hash = ObjectTable.hash(copy.identity().hashCode(), copy.key());
        var object =
                object(
                        copy.identity(),
                        EmbeddedStore.OWN,
                        copy.key(),
                        hash,
                        copy.size(),
                        copy.group(),
                        copy.hardPinned(),
                        now);
        object.state = State.COMPLETE;
        object.checksum = copy.checksum();
        object.lease = now;
        object.disk = copy;
        return object;
    }

    /// An eviction can help only where there are as many segments as replicas are wanted, and never
    /// for what is larger than every segment: it would cost all other objects.
    private int noRoom(EmbeddedClient client, long size, PutOptions options) {
        store.counters.allocFailures.increment();
        if (store.segments.count() >= options.replicas() && size <= store.segments.largest()) {
            store.wantEviction();
        }
        client.foundNoRoom(size);
        return StoreCode.NO_AVAILABLE_HANDLE.number();
    }

    /// Ends a put of this very object, which the caller has pinned.
    int end(StoredObject object, int checksum) {
        ObjectShard shard = store.objects.shardOf(object.hash);
        int code = StoreCode.OBJECT_NOT_FOUND.number();
        shard.lock();
        try {
            if (object.state == State.PROCESSING) {
                complete(object, checksum);
                code = 0;
            }
        } finally {
            object.unpin();
            shard.unlock();
        }
        store.counters.putEnds.increment();
        return code;
    }

    int end(EmbeddedClient client, String key, long number, int checksum) {
        int hash = ObjectTable.hash(client.identityHash(), key);
        ObjectShard shard = store.objects.shardOf(hash);
        int code;
        shard.lock();
        try {
            StoredObject object = shard.find(client.identity(), key, hash);
            code = mayEnd(object, client, number);
            if (code == 0 && object != null && object.state == State.PROCESSING) {
                complete(object, checksum);
            }
            if (code != 0) {
                releaseDiscarded(client, number);
            }
        } finally {
            shard.unlock();
        }
        store.counters.putEnds.increment();
        return code;
    }

    /// The lease of no length makes it the most recent one, and evictable at once.
    private void complete(StoredObject object, int checksum) {
        long now = store.time.now();
        object.state = State.COMPLETE;
        object.checksum = checksum;
        object.lease = now;
        object.softPin = object.softPin == 0 ? 0 : now + object.softPin;
        open.decrementAndGet();
        store.offloads.ended(object);
    }

    private static int mayEnd(@Nullable StoredObject object, EmbeddedClient client, long number) {
        if (object == null) {
            return StoreCode.OBJECT_NOT_FOUND.number();
        }
        if (object.writer != client.number()) {
            return StoreCode.ILLEGAL_CLIENT.number();
        }
        return object.put == number ? 0 : StoreCode.INVALID_WRITE.number();
    }

    int revoke(EmbeddedClient client, String key, long number) {
        store.counters.putRevokes.increment();
        int hash = ObjectTable.hash(client.identityHash(), key);
        ObjectShard shard = store.objects.shardOf(hash);
        shard.lock();
        try {
            StoredObject object = shard.find(client.identity(), key, hash);
            int code = mayEnd(object, client, number);
            if (code != 0 || object == null) {
                releaseDiscarded(client, number);
                return code;
            }
            if (object.state == State.COMPLETE) {
                return StoreCode.INVALID_WRITE.number();
            }
            store.objects.erase(object);
            object.freeMemory();
            open.decrementAndGet();
            return 0;
        } finally {
            shard.unlock();
        }
    }

    /// Gives up the put of an object that the caller has pinned.
    void revoke(StoredObject object) {
        ObjectShard shard = store.objects.shardOf(object.hash);
        shard.lock();
        try {
            if (object.state == State.PROCESSING) {
                store.objects.erase(object);
                object.freeMemory();
                open.decrementAndGet();
            }
        } finally {
            object.unpin();
            shard.unlock();
        }
        store.counters.putRevokes.increment();
    }

    /// Keeps the memory of a put that another takes the place of: its writer may not know yet.
    /// Under the lock of its shard.
    private void discard(StoredObject put) {
        synchronized (discarded) {
            discarded.add(put); // first, since it may fail: a put that is not here is never freed
        }
        store.objects.erase(put);
        open.decrementAndGet();
        store.objects.keep(put, true);
        store.counters.discards.increment();
    }

    /// The writer of a put that was discarded says that it writes no more. Under the lock of its
    /// shard.
    private void releaseDiscarded(EmbeddedClient client, long number) {
        StoredObject over = null;
        synchronized (discarded) {
            for (Iterator<StoredObject> at = discarded.iterator(); over == null && at.hasNext(); ) {
                StoredObject put = at.next();
                if (put.put == number && put.writer == client.number()) {
                    at.remove();
                    over = put;
                }
            }
        }
        if (over != null) {
            over.freeMemory();
            store.objects.keep(over, false);
            store.counters.releases.increment();
        }
    }

    /// Discards puts that were not ended in time, even if no other put of the same key follows.
    void discardAbandoned() {
        long now = store.time.now();
        if (open.get() == 0 || now < nextSweep) {
            return;
        }
        nextSweep = now + SWEEP_NANOS;
        store.objects.forEach(object -> {
            if (object.state == State.PROCESSING && isStale(object, now)) {
                discard(object);
            }
        });
    }

    /// Frees what discarded puts left when their writers have given up for sure.
    ///
    /// @return how many
    int releaseDue() {
        long now = store.time.now();
        int released = release(put -> now - put.putStart >= releaseAfter);
        store.counters.releases.add(released);
        return released;
    }

    /// Frees the memory that discarded puts hold in segments that are gone.
    void releaseIn(List<Segment> gone) {
        release(put -> put.segment != null && gone.contains(put.segment));
    }

    /// One at a time: a put that has left the list is freed without an allocation on the heap.
    private int release(Predicate<StoredObject> which) {
        int released = 0;
        for (int i = discarded() - 1; i >= 0; i--) {
            StoredObject put = take(i, which);
            if (put != null) {
                free(put);
                released++;
            }
        }
        return released;
    }

    private int discarded() {
        synchronized (discarded) {
            return discarded.size();
        }
    }

    /// Takes one out of the list; the last one, which was looked at before, gets its place.
    private @Nullable StoredObject take(int index, Predicate<StoredObject> which) {
        synchronized (discarded) {
            if (index >= discarded.size() || !which.test(discarded.get(index))) {
                return null;
            }
            StoredObject put = discarded.get(index);
            StoredObject last = discarded.removeLast();
            if (last != put) {
                discarded.set(index, last);
            }
            return put;
        }
    }

    private void free(StoredObject put) {
        ObjectShard shard = store.objects.shardOf(put.hash);
        shard.lock();
        try {
            put.freeMemory();
            store.objects.keep(put, false);
        } finally {
            shard.unlock();
        }
    }

    long discardedBytes() {
        synchronized (discarded) {
            return discarded.stream().mapToLong(put -> put.size).sum();
        }
    }

    /// A put was removed in another way than by its end: under the lock of its shard.
    void forget(StoredObject removed) {
        if (removed.state == State.PROCESSING) {
            open.decrementAndGet();
        }
    }
}
