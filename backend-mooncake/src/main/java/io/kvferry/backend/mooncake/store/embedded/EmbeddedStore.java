// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.StoreUsage;
import io.kvferry.backend.mooncake.store.embedded.objects.Identities;
import io.kvferry.backend.mooncake.store.embedded.objects.ObjectTable;
import io.kvferry.backend.mooncake.store.embedded.objects.Segment;
import io.kvferry.backend.mooncake.store.embedded.objects.SegmentTable;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreCounters;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreParts;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreTime;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.embedded.offload.Offloads;
import io.kvferry.backend.mooncake.store.embedded.offload.Promotions;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LastingLoop;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.MemorySegment;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;

/// A store in this JVM that behaves like Mooncake's master with one owner. Segments are mounted
/// under names; each user opens a `Store`.
///
/// Threading: any thread. Closing does not block: calls in progress end with an error, or with
/// bytes that are complete.
public final class EmbeddedStore implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(EmbeddedStore.class);

    /// Least pause between two runs of the store's thread, as a multiple of what the last one took.
    private static final int PAUSE_FACTOR = 4;

    /// Owner of segments that live as long as the store.
    static final long OWN = 0;

    private final long id = new SecureRandom().nextLong();
    private final StoreParts parts;
    final StoreConfig config;
    final StoreTime time;
    final StoreCounters counters;
    final SegmentTable segments;
    final ObjectTable objects;
    final Puts puts;
    final ClientTable clients;
    final Offloads offloads;
    final @Nullable DiskTier tier;
    private final @Nullable Promotions promotions;
    private final Evictor evictor;
    private final CountDownLatch stop = new CountDownLatch(1);

    private final Identities identities = new Identities();
    private final StoreContents contents;
    private volatile boolean closed;

    private EmbeddedStore(StoreConfig config, SegmentTable segments, @Nullable DiskTier tier) {
        this.tier = tier;
        this.parts = StoreParts.of(config, segments);
        this.config = config;
        this.time = parts.time();
        this.counters = parts.counters();
        this.segments = segments;
        this.objects = parts.objects();
        this.puts = new Puts(this);
        this.contents = new StoreContents(parts, puts);
        this.clients = new ClientTable(time, StoreTime.nanos(config.clientTime()));
        this.evictor = new Evictor(this);
        this.offloads = new Offloads(parts, tier);
        this.promotions = tier == null ? null : new Promotions(parts, tier);
    }

    /// An empty store without a segment.
    public static EmbeddedStore open(StoreConfig config) {
        return open(config, new SegmentTable());
    }

    /// A store without a segment, over a disk tier. What the tier holds from earlier can be read at
    /// once. The tier is closed with the store, also when this fails.
    ///
    /// @throws KvFerryException when the tier cannot be read
    public static EmbeddedStore open(StoreConfig config, DiskTier tier) {
        return open(config, new SegmentTable(), tier);
    }

    static EmbeddedStore open(StoreConfig config, SegmentTable segments) {
        return open(config, segments, null);
    }

    static EmbeddedStore open(StoreConfig config, SegmentTable segments, @Nullable DiskTier tier) {
        return open(config, segments, tier, Thread.ofPlatform().daemon().factory());
    }

    /// @param threads makes the threads of the store, which names them
    static EmbeddedStore open(
            StoreConfig config,
            SegmentTable segments,
            @Nullable DiskTier tier,
            ThreadFactory threads) {
        EmbeddedStore store = null;
        boolean done = false;
        try {
            store = new EmbeddedStore(config, segments, tier);
            store.offloads.recover(store.identities::intern, store.puts::recovered);
            if (config.tick().isPositive()) {
                store.start(threads);
            }
            done = true;
            return store;
        } finally {
            if (!done) {
                if (store != null) {
                    store.close();
                } else if (tier != null) {
                    tier.close();
                }
            }
        }
    }

    private void start(ThreadFactory threads) {
        offloads.start(threads);
        Thread thread = threads.newThread(new LastingLoop(this::work));
        thread.setName("kvferry-store");
        thread.start();
    }

    /// Tells this store from every other, also from those of other processes.
    public long id() {
        return id;
    }

    /// A user of the store.
    public EmbeddedClient client(StoreIdentity identity) {
        return new EmbeddedClient(this, identities.intern(identity), clients.add());
    }

    /// Adds memory that lives as long as the store. Several segments may have one name.
    ///
    /// @throws KvFerryException [ErrorCode#NO_MEMORY] when there is no memory, [ErrorCode#CLOSED]
    ///   when the store is closed
    public void mount(String name, long bytes) {
        mount(name, bytes, OWN, SegmentMemory.PRIVATE);
    }

    /// As [#mount(String, long)], with memory from elsewhere.
    public void mount(String name, long bytes, SegmentMemory source) {
        mount(name, bytes, OWN, source);
    }

    void mount(String name, long bytes, long owner, SegmentMemory source) {
        if (bytes < 1024) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, "segment " + name + " of " + bytes + " bytes");
        }
        try {
            var segment = new Segment(name, owner, bytes, source);
            boolean added = false;
            try {
                added = segments.add(segment);
            } finally {
                if (!added) {
                    segment.unmount();
                }
            }
            if (!added) {
                throw new KvFerryException(
                        ErrorCode.CLOSED, "segment " + name + ": the store is closed");
            }
        } catch (OutOfMemoryError e) {
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY,
                    "no memory for segment "
                            + name
                            + " of "
                            + bytes
                            + " bytes ("
                            + e.getMessage()
                            + "); set global_segment_size to less",
                    e);
        }
    }

    /// Takes all segments of a name away at once, and with them their objects.
    ///
    /// @return how many segments
    public int unmount(String name) {
        List<Segment> gone = segments.named(name);
        unmount(gone);
        return gone.size();
    }

    void unmount(List<Segment> gone) {
        if (gone.isEmpty()) {
            return;
        }
        for (int i = 0; i < gone.size(); i++) {
            gone.get(i).unmount(); // takes no more objects from here on
        }
        removeWhere(object -> object.segment != null && gone.contains(object.segment));
        puts.releaseIn(gone);
        segments.remove(gone); // last: an unmount that failed can be repeated
    }

    private void removeWhere(Predicate<StoredObject> which) {
        objects.forEach(object -> {
            if (!which.test(object)) {
                return;
            }
            if (object.disk != null && object.pins == 0) {
                object.dropMemory(); // the copy on disk stays
                return;
            }
            if (!closed) { // a copy outlives the store
                offloads.removed(object);
            }
            puts.forget(object);
            objects.erase(object);
            object.freeMemory();
        });
    }

    /// Does what is due: expires clients, frees what replaced puts left, evicts. Called by the
    /// store's own thread unless [StoreConfig#tick] is zero.
    ///
    /// @return objects that were evicted
    public long tick() {
        for (long client : clients.expired()) {
            LOG.info("client {} does not ping: its segments are unmounted", client);
        }
        unmount(
                segments.all().stream()
                        .filter(segment ->
                                segment.owner() != OWN && !clients.isWatched(segment.owner()))
                        .toList());
        puts.discardAbandoned();
        contents.refresh();
        if (evictor.isDue()) {
            return evictor.run();
        }
        puts.releaseDue();
        return 0;
    }

    private void work() {
        try {
            long pause = config.tick().toNanos();
            while (!stop.await(pause, TimeUnit.NANOSECONDS)) {
                long begin = System.nanoTime();
                try {
                    tick();
                } catch (RuntimeException | Error e) {
                    report(e);
                }
                // The pause also bounds the cost of scanning a large store whose objects are all
                // leased.
                long took = System.nanoTime() - begin;
                pause = Math.max(config.tick().toNanos(), PAUSE_FACTOR * took);
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }

    /// After an OutOfMemoryError logging may fail as well. That must not end this thread, or
    /// nothing would be evicted any more.
    private static void report(Throwable failure) {
        try {
            LOG.error("store maintenance failed; it is retried", failure);
        } catch (RuntimeException | Error _) {
            // The next run that fails says so.
        }
    }

    /// What the memory is used for. Looks at every object.
    public StoreUsage usage() {
        return contents.usage();
    }

    /// As [#usage], as it was a second ago or earlier; empty until the store's thread has found the
    /// time to look. Cheap.
    public Optional<StoreUsage> recentUsage() {
        return contents.recent();
    }

    /// What happened since the store was opened, by the names of Mooncake's metrics.
    public Map<String, Long> counters() {
        return counters.values(tier);
    }

    /// The disk tier now, and where the objects are as of [#recentUsage], by the names of
    /// Mooncake's metrics.
    public Map<String, Long> gauges() {
        var gauges = new TreeMap<>(offloads.gauges());
        contents.addGauges(gauges);
        return gauges;
    }

    /// Bytes through which objects come from disk at a time; 0 without a disk tier.
    public long stagingBytes() {
        return tier == null ? 0 : tier.stagingBudget();
    }

    /// Reads the objects of a batch from disk that have no memory.
    DiskGets diskGets(BatchState state, int size) {
        if (tier == null || promotions == null) {
            throw new IllegalStateException("a copy on disk without a disk tier");
        }
        return new DiskGets(offloads, tier, promotions, state, size);
    }

    /// An object was read from disk; the reader has it pinned.
    void wasRead(StoredObject object, MemorySegment value) {
        if (promotions != null) {
            promotions.read(object, value);
        }
    }

    /// Waits until no restart can find what was removed before this call. Call it without locks.
    ///
    /// @return 0, or a code when that is not certain; the caller must then ask again
    int confirmRemovals() {
        int code = offloads.confirmRemovals();
        // A closed store no longer knows what its disk still holds, so it cannot confirm.
        return closed ? StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number() : code;
    }

    /// Objects in the store, those that are being written included. Cheap.
    public long keyCount() {
        return objects.size();
    }

    /// Bytes of all mounted segments. Cheap.
    public long capacity() {
        return segments.capacity();
    }

    /// Bytes of them that are taken. Cheap.
    public long usedBytes() {
        return segments.usedBytes();
    }

    /// Identities that have objects here. May include some whose objects are gone.
    public Set<StoreIdentity> identities() {
        return identities.all();
    }

    /// The keys of an identity that can be read. Looks at every object.
    public List<String> keys(StoreIdentity identity) {
        return contents.keys(identity);
    }

    /// An object and where it is.
    public record Listed(long bytes, boolean inMemory, boolean onDisk) {}

    /// The keys of an identity that can be read, with their objects. Looks at every object; grants
    /// no lease.
    public SortedMap<String, Listed> list(StoreIdentity identity) {
        return contents.list(identity);
    }

    /// Names of the mounted segments, one each.
    public List<String> segmentNames() {
        var names = new ArrayList<String>();
        segments.all().forEach(segment -> names.add(segment.name()));
        return names;
    }

    /// An allocation failed that an eviction may help.
    void wantEviction() {
        evictor.want();
    }

    /// A put found that the objects cost too much of the heap.
    void wantHeap() {
        evictor.wantHeap();
        offloads.wantHeap();
    }

    /// Part of its budget that the objects cost on the heap.
    double heapShare() {
        return parts.heapShare();
    }

    boolean isClosed() {
        return closed;
    }

    /// Unmounts everything and stops the store's threads. Objects that wait for the disk are still
    /// written, within a time limit.
    @Override
    public void close() {
        if (!closed) {
            closed = true;
            stop.countDown();
            try {
                offloads.close();
                segments.close();
                unmount(segments.all());
                objects.forEach(object -> objects.erase(object)); // those on disk
            } finally {
                if (tier != null) {
                    tier.close(); // in any case: its folder would stay locked
                }
            }
        }
    }
}
