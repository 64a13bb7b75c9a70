// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.locks.ReentrantLock;

/// Copies blocks between the regions of one rank and the store or a hand-off, checks them, and
/// keeps count.
///
/// Threading: any thread; one job is moved by one thread.
final class MemoryMover {
    /// No background transfer takes longer.
    static final Duration LIMIT = Duration.ofSeconds(10);

    private final String instance;
    private final String namespace;
    private final MemoryStore store;
    private final int rank;
    private final int worldSize;
    private final int groups;
    private final int capacity;
    private final ReentrantLock lock = new ReentrantLock();
    private Stats stats = Stats.EMPTY; // guarded by lock
    private List<CacheEvent> events = new ArrayList<>(); // guarded by lock
    private List<KvRegion> regions = List.of();
    private int[] slot = {};
    private List<List<KvRegion>> byGroup = List.of();

    MemoryMover(WorkerContext context, MemoryStore store) {
        this.instance = context.instance();
        this.namespace = context.engine().namespace().hex();
        this.store = store;
        this.rank = context.rank().rank();
        this.worldSize = context.rank().worldSize();
        this.groups = context.engine().cache().groups().size();
        this.capacity = (int) context.options().integer("capacity_blocks");
    }

    /// The regions, once, before any job; `slot[i]` is the place of region `i` among those of its
    /// group.
    void use(List<KvRegion> all) {
        regions = all;
        slot = new int[all.size()];
        var sorted = new ArrayList<List<KvRegion>>();
        for (int group = 0; group < groups; group++) {
            sorted.add(new ArrayList<>());
        }
        for (int i = 0; i < all.size(); i++) {
            var layers = sorted.get(all.get(i).group());
            slot[i] = layers.size();
            layers.add(all.get(i));
        }
        byGroup = sorted;
    }

    List<KvRegion> layers(int group) {
        return byGroup.get(group);
    }

    int groups() {
        return groups;
    }

    MemoryJob job(TransferId id, MemoryPlan.Blocks blocks) {
        int layers = regions.stream().mapToInt(KvRegion::layerIndex).max().orElse(0) + 1;
        return new MemoryJob(id, layers, groups, blocks);
    }

    /// Loads all blocks, layer by layer; failures are the job's. Ends the job.
    void load(MemoryPlan.Load load, MemoryJob job, Deadline limit) {
        try {
            var blocks = load.blocks();
            var parts = load.handOff().isEmpty() ? parts(blocks, job) : new MemoryStore.Part[0][];
            var handOff =
                    load.handOff().isEmpty()
                            ? Optional.<HandOff>empty()
                            : store.handOff(load.handOff(), rank);
            for (int layer = 0; layer < regions.size() && !job.isRevoked(); layer++) {
                for (int i = 0; i < blocks.count() && !job.isRevoked(); i++) {
                    if (limit.passed()) {
                        job.failAll(
                                new Failure(
                                        ErrorCode.TIMEOUT,
                                        "load " + load.id() + " took longer than its limit"));
                        return;
                    }
                    if (load.handOff().isEmpty()) {
                        loadStored(layer, blocks, i, parts, job);
                    } else {
                        loadOffered(layer, blocks, i, handOff, job);
                    }
                }
                job.layerDone(regions.get(layer).layerIndex());
            }
            handOff.ifPresent(HandOff::taken);
            count("memory_load_bytes", job.isRevoked() ? 0 : job.bytes());
        } catch (KvFerryException e) {
            job.failAll(Failure.of(e));
        } finally {
            job.end();
        }
    }

    private MemoryStore.Part[][] parts(MemoryPlan.Blocks blocks, MemoryJob job) {
        var parts = new MemoryStore.Part[groups][blocks.count()];
        for (int group = 0; group < groups; group++) {
            for (int i = 0; i < blocks.count(); i++) {
                if (!blocks.has(group, i)) {
                    continue;
                }
                var found = store.get(namespace, blocks.hashes().get(i), rank * groups + group);
                if (found.isPresent()) {
                    parts[group][i] = found.get();
                } else {
                    job.fail(
                            group,
                            i,
                            new Failure(
                                    ErrorCode.MISS,
                                    "block " + blocks.hashes().get(i) + " is gone"));
                }
            }
        }
        return parts;
    }

    private void loadStored(
            int layer, MemoryPlan.Blocks blocks, int i, MemoryStore.Part[][] parts, MemoryJob job) {
        var region = regions.get(layer);
        var part = parts[region.group()][i];
        if (part == null) {
            return; // counted as failed already, or nowhere to put it
        }
        if (!part.isSound(slot[layer], region.blockBytes())) {
            var hash = blocks.hashes().get(i);
            job.fail(
                    region.group(),
                    i,
                    new Failure(ErrorCode.CORRUPT, "block " + hash + " fails its checksum"));
            if (store.remove(namespace, hash)) {
                event(new CacheEvent.Removed(instance, Tier.HOST, List.of(hash)));
            }
            return;
        }
        MemorySegment.copy(
                part.data(),
                slot[layer] * region.blockBytes(),
                region.segment(),
                region.offset(blocks.ids()[region.group()][i]),
                region.blockBytes());
        job.moved(region.blockBytes());
    }

    private void loadOffered(
            int layer, MemoryPlan.Blocks blocks, int i, Optional<HandOff> handOff, MemoryJob job) {
        var region = regions.get(layer);
        if (!blocks.has(region.group(), i)) {
            return;
        }
        long at = region.offset(blocks.ids()[region.group()][i]);
        if (handOff.isEmpty()
                || !handOff.get().read(layer, blocks.first() + i, region.segment(), at)) {
            job.fail(
                    region.group(),
                    i,
                    new Failure(ErrorCode.LEASE_EXPIRED, "the producer's hold has ended"));
            return;
        }
        job.moved(region.blockBytes());
    }

    /// How often the store was emptied: what was taken before the last time is not stored.
    long clearings() {
        return store.clearings(namespace);
    }

    /// Puts one block into the store; a failure costs the block only.
    void store(BlockHash hash, int group, MemoryStore.Part part) {
        var evicted = new ArrayList<BlockHash>();
        try {
            boolean loadable =
                    store.put(
                            namespace,
                            hash,
                            rank * groups + group,
                            worldSize * groups,
                            part,
                            capacity,
                            evicted);
            count("memory_save_bytes", part.data().byteSize());
            if (loadable && !evicted.contains(hash)) {
                event(new CacheEvent.Stored(instance, Tier.HOST, List.of(hash)));
            }
            if (!evicted.isEmpty()) {
                event(new CacheEvent.Removed(instance, Tier.HOST, evicted));
            }
        } catch (KvFerryException e) {
            count("memory_save_failures", 1);
        }
    }

    private void count(String name, long value) {
        lock.lock();
        try {
            stats = stats.merge(Stats.counter(name, value));
        } finally {
            lock.unlock();
        }
    }

    private void event(CacheEvent event) {
        lock.lock();
        try {
            events.add(event);
        } finally {
            lock.unlock();
        }
    }

    Stats drainStats() {
        lock.lock();
        try {
            var drained = stats;
            stats = Stats.EMPTY;
            return drained;
        } finally {
            lock.unlock();
        }
    }

    List<CacheEvent> drainEvents() {
        lock.lock();
        try {
            var drained = events;
            events = new ArrayList<>();
            return drained;
        } finally {
            lock.unlock();
        }
    }
}
