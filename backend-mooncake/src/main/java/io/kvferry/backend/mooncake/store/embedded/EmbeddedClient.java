// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.StoreUsage;
import io.kvferry.backend.mooncake.store.embedded.objects.RemovalLog;
import io.kvferry.backend.mooncake.store.embedded.objects.Segment;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.backend.mooncake.store.tier.StagedRead;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;

/// One user of an [EmbeddedStore]. May mount segments of its own, for which it has to ping.
///
/// Threading: any thread.
public final class EmbeddedClient implements Store, PutSessions {
    private final EmbeddedStore store;
    private final StoreIdentity identity;
    private final int identityHash;
    private final long number;
    private final ObjectReads reads;
    private final BatchCopies copies;
    private final RegisteredMemory registered = new RegisteredMemory();
    private final AtomicReference<@Nullable RemovalLog> removals = new AtomicReference<>();
    private volatile String noRoom = "";
    private volatile long noRoomBytes;
    private volatile long noRoomHeap;
    private volatile boolean closed;

    EmbeddedClient(EmbeddedStore store, StoreIdentity identity, long number) {
        this.store = store;
        this.identity = identity;
        this.identityHash = identity.hashCode();
        this.number = number;
        this.reads = new ObjectReads(store, this);
        this.copies = new BatchCopies(store.config.checksums());
    }

    StoreIdentity identity() {
        return identity;
    }

    int identityHash() {
        return identityHash;
    }

    long number() {
        return number;
    }

    @Override
    public Set<Feature> features() {
        return EnumSet.allOf(Feature.class);
    }

    @Override
    public int register(MemorySegment memory) {
        return registered.add(memory);
    }

    @Override
    public int unregister(MemorySegment memory) {
        return registered.remove(memory);
    }

    @Override
    public void put(StoreBatch batch, PutOptions options, int[] results) {
        registered.check(batch);
        BatchState state = BatchState.of(batch);
        for (int i = 0; i < batch.size(); i++) {
            int code = isClosed() ? unavailable() : put(batch, state, i, options);
            boolean present = code == StoreCode.OBJECT_ALREADY_EXISTS.number();
            results[i] = present ? 0 : code;
        }
    }

    private int put(StoreBatch batch, BatchState state, int index, PutOptions options) {
        int code =
                store.puts.start(
                        this,
                        batch.key(index),
                        batch.bytes(index),
                        batch.group(index),
                        options,
                        true,
                        object -> state.pinned[index] = object);
        if (code != 0) {
            return code;
        }
        StoredObject object = state.takePinned(index);
        boolean written = false;
        try {
            int checksum = copies.write(batch, index, object);
            written = true;
            return store.puts.end(object, checksum);
        } finally {
            if (!written) {
                store.puts.revoke(object);
            }
        }
    }

    @Override
    public void get(StoreBatch batch, long[] results) {
        registered.check(batch);
        BatchState state = BatchState.of(batch);
        int done = 0;
        DiskGets disk = null;
        try {
            for (int i = 0; i < batch.size(); i++) {
                state.copies[i] = null;
                results[i] = isClosed() ? unavailable() : reads.pin(batch.key(i), state, i);
            }
            for (; done < batch.size(); done++) {
                if (results[done] == 0 && state.copies[done] != null) {
                    disk = disk == null ? store.diskGets(state, batch.size()) : disk;
                    results[done] = readDisk(disk, batch, state, done);
                } else if (results[done] == 0) {
                    results[done] = read(batch, state, done);
                }
            }
        } finally {
            if (disk != null) {
                disk.close();
            }
            for (; done < batch.size(); done++) { // an error: what was pinned must not stay so
                if (state.pinned[done] != null) {
                    reads.unpin(state.takePinned(done));
                }
            }
        }
    }

    private long read(StoreBatch batch, BatchState state, int index) {
        StoredObject object = state.takePinned(index);
        try {
            if (batch.bytes(index) < object.size) {
                return StoreCode.INVALID_PARAMS.number();
            }
            if (!reads.renew(object, state.leases, index)) {
                return StoreCode.LEASE_EXPIRED.number();
            }
            if (!copies.read(batch, index, object)) {
                reads.dropDamaged(object);
                return StoreCode.CHECKSUM_MISMATCH.number();
            }
            if (!reads.isInTime(object, state.leases, index)) {
                return StoreCode.LEASE_EXPIRED.number();
            }
            store.counters.hitBytes.add(object.size);
            return object.size;
        } finally {
            reads.unpin(object);
        }
    }

    private long readDisk(DiskGets disk, StoreBatch batch, BatchState state, int index) {
        StoredObject object = state.pinned[index];
        if (object == null) {
            throw new IllegalStateException("nothing is pinned");
        }
        if (!reads.renew(object, state.leases, index)) {
            reads.unpin(state.takePinned(index));
            return StoreCode.LEASE_EXPIRED.number();
        }
        try (StagedRead read = disk.take(index, object)) {
            if (read == null) {
                return disk.code();
            }
            if (batch.bytes(index) < object.size) {
                return StoreCode.INVALID_PARAMS.number();
            }
            BatchCopies.read(batch, index, read.value());
            return reads.isInTime(object, state.leases, index)
                    ? object.size
                    : StoreCode.LEASE_EXPIRED.number();
        } finally {
            reads.unpin(state.takePinned(index));
        }
    }

    @Override
    public void exists(List<String> keys, boolean lease, int[] results) {
        for (int i = 0; i < keys.size(); i++) {
            results[i] = isClosed() ? unavailable() : reads.exists(keys.get(i), lease);
        }
    }

    @Override
    public void describe(List<String> keys, @Nullable ReplicaDescriptor[] found, int[] results) {
        for (int i = 0; i < keys.size(); i++) {
            found[i] = null;
            results[i] = isClosed() ? unavailable() : reads.describe(keys.get(i), found, i);
        }
    }

    @Override
    public long size(String key) {
        var found = new ReplicaDescriptor[1];
        var results = new int[1];
        describe(List.of(key), found, results);
        ReplicaDescriptor descriptor = found[0];
        return descriptor == null ? results[0] : descriptor.length();
    }

    @Override
    public int remove(String key, boolean force) {
        return isClosed() ? unavailable() : reads.remove(key, force);
    }

    @Override
    public long removeByRegex(String regex, boolean force) {
        var expression = KeyExpression.of(regex);
        if (expression.isEmpty()) {
            return StoreCode.INVALID_PARAMS.number();
        }
        try {
            return isClosed() ? unavailable() : reads.removeAll(expression.get()::matches, force);
        } catch (KeyExpression.TooManySteps _) {
            return StoreCode.INVALID_PARAMS.number();
        }
    }

    @Override
    public long removeAll(boolean force) {
        return isClosed() ? unavailable() : reads.removeAll(_ -> true, force);
    }

    @Override
    public void putStart(
            List<String> keys,
            long[] sizes,
            List<@Nullable String> groups,
            PutOptions options,
            @Nullable Started[] started,
            int[] results) {
        for (int i = 0; i < keys.size(); i++) {
            int at = i;
            started[i] = null;
            results[i] =
                    isClosed()
                            ? unavailable()
                            : store.puts.start(
                                    this,
                                    keys.get(i),
                                    sizes[i],
                                    groups.isEmpty() ? null : groups.get(i),
                                    options,
                                    false,
                                    object -> started[at] = started(object));
        }
    }

    private static Started started(StoredObject object) {
        Segment segment = object.place();
        var replica =
                new ReplicaDescriptor(
                        ReplicaDescriptor.Tier.MEMORY,
                        segment.name(),
                        segment.id(),
                        object.offset,
                        object.size,
                        0,
                        0);
        return new Started(
                object.key,
                object.put,
                replica,
                segment.memory().asSlice(object.offset, object.size));
    }

    @Override
    public int putEnd(String key, long put, int checksum) {
        return isClosed() ? unavailable() : store.puts.end(this, key, put, checksum);
    }

    @Override
    public int putRevoke(String key, long put) {
        // Also when this client is closed: its memory would be taken for good.
        return store.isClosed() ? unavailable() : store.puts.revoke(this, key, put);
    }

    /// Leases objects and keeps them where they are, until the caller lets them go.
    public PinnedObjects pin(List<String> keys) {
        return new PinnedObjects(store, reads, keys, isClosed() ? unavailable() : 0);
    }

    /// A reader found other bytes than were put. Where the store's own copy is damaged, and not
    /// what the reader got of it, the object goes.
    ///
    /// @return whether it went
    public boolean dropIfDamaged(String key) {
        try (var pinned = pin(List.of(key))) {
            if (pinned.result(0) <= 0) {
                return false;
            }
            if (BatchCopies.checksum(pinned.memory(0)) == pinned.checksum(0)) {
                return false;
            }
            reads.dropDamaged(key);
            return true;
        }
    }

    /// Mounts memory that stays as long as this client pings, and not after [#close].
    ///
    /// @throws KvFerryException [ErrorCode#NO_MEMORY], or [ErrorCode#CLOSED] when this client or
    ///   the store is closed
    public synchronized void mount(String name, long bytes) {
        if (!store.clients.isWatched(number)) {
            unmountOwn(); // segments that expired and are not unmounted yet
        }
        store.clients.watch(number);
        store.mount(name, bytes, number, SegmentMemory.PRIVATE);
        if (closed || !store.clients.isWatched(number)) { // what was mounted before has gone, too
            unmountOwn();
            throw new KvFerryException(
                    ErrorCode.CLOSED,
                    "segment " + name + " is not mounted: its client was closed or did not ping");
        }
    }

    private void unmountOwn() {
        store.unmount(
                store.segments.all().stream()
                        .filter(segment -> segment.owner() == number)
                        .toList());
    }

    /// A sign of life, due every [StoreConfig#clientTime].
    ///
    /// @return false when the segments of this client were unmounted because none came in time: it
    ///   has to mount again, and what was in them is lost
    public boolean ping() {
        return store.clients.ping(number);
    }

    /// The memory that a descriptor of this store names, for who reads it under the lease.
    ///
    /// @throws IllegalStateException when it has been unmounted
    public MemorySegment memory(ReplicaDescriptor replica) {
        return store.segments.all().stream()
                .filter(segment -> segment.id() == replica.segmentId())
                .findFirst()
                .orElseThrow(() -> new IllegalStateException("no segment " + replica.segment()))
                .memory()
                .asSlice(replica.offset(), replica.length());
    }

    /// Only records the failure. The reason is computed on request, since that scans all objects.
    void foundNoRoom(long bytes) {
        noRoomHeap = 0;
        noRoomBytes = bytes;
    }

    /// The same, where the objects cost too much of the heap.
    void foundNoHeap(long bytes) {
        noRoomBytes = 0;
        noRoomHeap = bytes;
    }

    @Override
    public String noRoom() {
        long bytes = noRoomBytes;
        long heap = noRoomHeap;
        if (heap > 0) {
            noRoom =
                    "no room on the heap for a key and what is known of its object, "
                            + heap
                            + " bytes: objects cost "
                            + store.objects.heapBytes()
                            + " of the "
                            + store.config.heapBytes()
                            + " bytes that they may cost there; a larger -Xmx gives more";
            noRoomHeap = 0;
        } else if (bytes > 0) {
            StoreUsage usage = store.usage();
            noRoom =
                    "no room for "
                            + bytes
                            + " bytes: "
                            + usage.shortageOf(bytes).text()
                            + " ("
                            + usage
                            + ")";
            noRoomBytes = 0;
        }
        return noRoom;
    }

    @Override
    public Removals removals() {
        RemovalLog log = removals.get();
        if (log != null) {
            return log.drain();
        }
        var made = new RemovalLog(identity);
        if (removals.compareAndSet(null, made)) {
            follow(made);
        }
        return Removals.NONE;
    }

    private void follow(RemovalLog log) {
        boolean done = false;
        try {
            store.objects.follow(log);
            done = true;
        } finally {
            if (!done) {
                removals.set(null); // otherwise it would never be filled
            }
        }
    }

    @Override
    public Optional<StoreUsage> usage() {
        return isClosed() ? Optional.empty() : store.recentUsage();
    }

    @Override
    public int healthCheck() {
        return isClosed() ? unavailable() : 0;
    }

    private boolean isClosed() {
        return closed || store.isClosed();
    }

    private static int unavailable() {
        return StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number();
    }

    @Override
    public void close() {
        closed = true; // a close that failed can be called again: each step can be repeated
        RemovalLog log = removals.get();
        if (log != null) {
            store.objects.unfollow(log);
        }
        store.clients.forget(number);
        unmountOwn();
    }
}
