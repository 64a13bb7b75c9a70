// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.storeconnector.keys.BlockKeys;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.observe.Stats;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.BitSet;
import java.util.List;

/// The calls of the store that move the blocks of one rank.
///
/// Threading: any thread.
final class BlockTransfers {
    private static final Logger LOG = LoggerFactory.getLogger(BlockTransfers.class);
    private static final int NO_ROOM = StoreCode.NO_AVAILABLE_HANDLE.number();

    private final Store store;
    private final BlockKeys keys;
    private final int rank;
    private final List<RegionBlocks> memory;
    private final PutOptions options;
    private final boolean grouped;
    private final @Nullable DiskStaging staging;
    private final PressureGate gate = new PressureGate();
    private final TierLog tierLog;
    private final boolean verifies;
    private final OperationStats puts = new OperationStats("save_put");
    private final OperationStats gets = new OperationStats("load_get");

    /// @param grouped whether the parts of a block are evicted together
    /// @param staging by which loads are split; null for not
    BlockTransfers(
            Store store,
            BlockKeys keys,
            int rank,
            List<RegionBlocks> memory,
            PutOptions options,
            boolean grouped,
            @Nullable DiskStaging staging) {
        this.staging = staging;
        this.store = store;
        this.keys = keys;
        this.rank = rank;
        this.memory = memory;
        this.options = options;
        this.grouped = grouped;
        this.tierLog = TierLog.of(store);
        this.verifies = !store.features().contains(Store.Feature.IN_PROCESS);
    }

    private void fill(StoreJob job, int from, int to, StoreBatch batch) {
        batch.clear();
        for (int part = from; part < to; part++) {
            var hash = job.move().hashes().get(job.index(part));
            int group = job.group(part);
            batch.add(keys.of(hash, group, rank), grouped ? keys.groupOf(hash) : null);
            memory.get(group).addTo(batch, job.block(part));
        }
    }

    /// Stores parts of a job; those that are there already count as stored.
    void save(StoreJob job, int from, int to, StoreBatch batch) {
        String request = job.id().subject();
        if (gate.skips(request)) {
            job.fail(new Failure(ErrorCode.NO_SPACE, "the store is full; not tried"));
            return;
        }
        fill(job, from, to, batch);
        var results = new int[to - from];
        long begin = System.nanoTime();
        try {
            store.put(batch, options, results);
        } catch (RuntimeException | Error e) {
            puts.error(System.nanoTime() - begin, to - from);
            throw e;
        }
        int failed = 0;
        int first = 0;
        boolean full = false;
        long bytes = 0;
        var stored = new BitSet();
        for (int i = 0; i < results.length; i++) {
            if (results[i] < 0) {
                first = failed == 0 ? i : first;
                failed++;
                full |= results[i] == NO_ROOM;
            } else {
                stored.set(i);
                bytes += memory.get(job.group(from + i)).bytes();
            }
        }
        puts.done(System.nanoTime() - begin, results.length, failed, bytes);
        if (gate.tried(request, full, failed > 0)) {
            LOG.warn(
                    "Detected Mooncake CPU/disk offloading pressure (NO_AVAILABLE_HANDLE); skipping"
                            + " future store batches for request {} until a later store batch"
                            + " succeeds: {}",
                    request,
                    store.noRoom());
        }
        var unfinished = verifies ? unfinished(stored, batch) : new BitSet();
        for (int i = stored.nextSetBit(0); i >= 0; i = stored.nextSetBit(i + 1)) {
            if (!unfinished.get(i)) {
                job.done(from + i, memory.get(job.group(from + i)).bytes());
            }
        }
        if (failed > 0) {
            var code = StoreCode.of(results[first]);
            String text =
                    "batch_put failed: "
                            + failed
                            + "/"
                            + results.length
                            + " keys failed (first "
                            + StoreCode.text(results[first])
                            + "), first_key="
                            + batch.key(first);
            LOG.debug(text);
            job.fail(new Failure(code.error(), text));
        } else if (!unfinished.isEmpty()) {
            job.fail(
                    new Failure(
                            ErrorCode.MISS,
                            "another writer has not finished a block; it is tried again"));
        }
    }

    /// What another writer has begun counts as stored, and may yet be given up. The scheduler half
    /// announces what a save says is stored without a further question, so here is asked.
    private BitSet unfinished(BitSet stored, StoreBatch batch) {
        var unfinished = new BitSet();
        if (stored.isEmpty()) {
            return unfinished;
        }
        var keys = stored.stream().mapToObj(batch::key).toList();
        var present = new int[keys.size()];
        store.exists(keys, false, present);
        int at = 0;
        for (int i = stored.nextSetBit(0); i >= 0; i = stored.nextSetBit(i + 1)) {
            unfinished.set(i, present[at++] != 1);
        }
        return unfinished;
    }

    /// Parts of a load that [#load] gets at a time: where it splits by bytes, all.
    int partsOfLoad() {
        return staging == null ? StoreJob.BATCH : Integer.MAX_VALUE;
    }

    /// Loads parts of a job, no more at a time than the owner has staging memory for.
    void load(StoreJob job, int from, int to, StoreBatch batch) {
        DiskStaging limit = staging;
        if (limit == null) {
            loadBatch(job, from, to, batch);
            return;
        }
        for (int part = from; part < to; part++) {
            long needed = stagingBytes(job, part);
            if (needed > limit.raw()) {
                giveUp(job, part, needed, limit);
                return;
            }
        }
        int most = limit.mostKeys(to - from);
        for (int first = from; first < to && !job.isStopped(); ) {
            int end = limit.batchEnd(first, to, most, part -> stagingBytes(job, part));
            loadStaged(job, first, end, limit, batch);
            first = end;
        }
    }

    private long stagingBytes(StoreJob job, int part) {
        return DiskStaging.bytesFor(memory.get(job.group(part)).bytes());
    }

    private void giveUp(StoreJob job, int part, long needed, DiskStaging limit) {
        String text =
                "Skipping Mooncake load for request "
                        + job.id().subject()
                        + " because key "
                        + keys.of(job.move().hashes().get(job.index(part)), job.group(part), rank)
                        + " requires "
                        + needed
                        + " staging bytes, exceeding budget "
                        + limit.raw();
        LOG.warn(text);
        job.fail(new Failure(ErrorCode.NO_MEMORY, text));
    }

    private void loadStaged(StoreJob job, int from, int to, DiskStaging limit, StoreBatch batch) {
        long bytes = 0;
        for (int part = from; part < to; part++) {
            bytes += stagingBytes(job, part);
        }
        try {
            if (!limit.take(bytes, job.remainingNanos())) {
                job.fail(
                        new Failure(
                                ErrorCode.TIMEOUT,
                                "other loads have the staging memory of the owner"));
                return;
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            job.fail(new Failure(ErrorCode.CANCELLED, "interrupted"));
            return;
        }
        try {
            loadBatch(job, from, to, batch);
        } finally {
            limit.give(bytes);
        }
    }

    private void loadBatch(StoreJob job, int from, int to, StoreBatch batch) {
        fill(job, from, to, batch);
        var results = new long[to - from];
        tierLog.before(batch);
        long begin = System.nanoTime();
        try {
            store.get(batch, results);
        } catch (RuntimeException | Error e) {
            gets.error(System.nanoTime() - begin, to - from);
            throw e;
        }
        int failed = 0;
        int first = 0;
        long bytes = 0;
        for (int i = 0; i < results.length; i++) {
            long wanted = memory.get(job.group(from + i)).bytes();
            if (results[i] == wanted) {
                job.done(from + i, wanted);
                bytes += wanted;
            } else {
                first = failed == 0 ? i : first;
                failed++;
            }
        }
        gets.done(System.nanoTime() - begin, results.length, failed, bytes);
        tierLog.after(job.id().subject(), results);
        if (failed > 0) {
            long code = results[first];
            String text =
                    "Failed to get "
                            + failed
                            + " Mooncake keys from sub-batch (batch_keys="
                            + results.length
                            + ", first "
                            + batch.key(first)
                            + ": "
                            + (code < 0 ? StoreCode.text(code) : code + " bytes")
                            + ")";
            LOG.debug(text);
            job.fail(
                    new Failure(
                            code < 0 ? StoreCode.of(code).error() : ErrorCode.INCOMPATIBLE, text));
        }
    }

    Stats drain() {
        return puts.drain().merge(gets.drain());
    }
}
