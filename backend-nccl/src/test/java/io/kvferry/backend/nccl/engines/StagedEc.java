// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.engines;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// An encoder-cache connector that keeps what was encoded in the staging pool of the host, where an
/// allocation that finds no room may evict it. An item that is not there any more, or never found
/// room, is a miss. Engines that are given the same object share the items.
///
/// Threading: any thread.
final class StagedEc implements EcConnectorProvider, AutoCloseable {
    static final String NAME = "StagedEc";

    private final StagingPool pool;

    /// Bytes that it may occupy.
    private final long most;

    private final Map<String, Long> buffers = new LinkedHashMap<>();

    /// What they ought to hold.
    private final Map<String, byte[]> contents = new HashMap<>();

    private long wrong;
    private long refused;

    StagedEc(StagingPool pool, long most) {
        this.pool = pool;
        this.most = most;
    }

    /// Items that found no room, in its own part or in the pool.
    synchronized long refused() {
        return refused;
    }

    /// Items that were not what had been kept.
    synchronized long wrong() {
        return wrong;
    }

    /// Bytes of items that are still there.
    synchronized long kept() {
        buffers.values()
                .removeIf(buffer -> {
                    boolean there = pool.pin(buffer);
                    if (there) {
                        pool.unpin(buffer);
                    }
                    return !there;
                });
        return buffers.values().stream().mapToLong(each -> pool.segment(each).byteSize()).sum();
    }

    private synchronized boolean has(String hash) {
        var buffer = buffers.get(hash);
        if (buffer == null || !pool.pin(buffer)) {
            return false;
        }
        pool.unpin(buffer);
        return true;
    }

    private synchronized void keep(String hash, EncoderOutput output) {
        if (has(hash)) {
            return;
        }
        try {
            long room = kept(); // forgets what was evicted
            long buffer = pool.allocateEvictable(NAME, output.bytes());
            var segment = pool.segment(buffer);
            if (room + segment.byteSize() > most) {
                pool.free(buffer);
                refused++;
                return;
            }
            segment.asSlice(0, output.bytes()).copyFrom(output.data());
            buffers.put(hash, buffer);
            contents.put(hash, output.data().toArray(ValueLayout.JAVA_BYTE));
        } catch (KvFerryException e) {
            refused++; // it is encoded again
        }
    }

    /// @return false where it has gone
    private synchronized boolean fill(String hash, EncoderOutput output) {
        var buffer = buffers.get(hash);
        if (buffer == null || !pool.pin(buffer)) {
            return false;
        }
        output.data().copyFrom(pool.segment(buffer).asSlice(0, output.bytes()));
        pool.unpin(buffer);
        if (!Arrays.equals(output.data().toArray(ValueLayout.JAVA_BYTE), contents.get(hash))) {
            wrong++;
        }
        return true;
    }

    @Override
    public synchronized void close() {
        var _ = kept();
        buffers.values().forEach(pool::free);
        buffers.clear();
    }

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "encoder outputs in the staging pool (test)";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.of();
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return ConnectorCapabilities.of(Feature.CONTENT_ADDRESSED, Feature.SYNC_LOAD, Feature.SAVE);
    }

    @Override
    public EcSchedulerConnector openScheduler(SchedulerContext context) {
        return new Scheduler(context);
    }

    @Override
    public EcWorkerConnector openWorker(WorkerContext context) {
        return new Worker(context);
    }

    private final class Scheduler implements EcSchedulerConnector {
        private final SchedulerContext context;
        private final Map<TransferId, EcItem> loads = new LinkedHashMap<>();

        Scheduler(SchedulerContext context) {
            this.context = context;
        }

        @Override
        public LookupResult lookup(EcItem item) {
            return has(item.hash())
                    ? LookupResult.hit(
                            item.embeddings(), LoadMode.SYNC, context.instance(), Tier.HOST)
                    : LookupResult.MISS;
        }

        @Override
        public void onAllocated(EcItem item, Optional<TransferId> load) {
            load.ifPresent(id -> loads.put(id, item));
        }

        @Override
        public Payload buildPlan(long step) {
            if (loads.isEmpty()) {
                return Payload.EMPTY;
            }
            var out = new WireWriter().i32(loads.size());
            loads.forEach((id, item) -> {
                id.write(out);
                item.write(out);
            });
            loads.clear();
            return out.toPayload(1);
        }

        @Override
        public void onRevoked(TransferId id) {
            loads.remove(id);
        }

        @Override
        public void close() {}
    }

    private final class Worker implements EcWorkerConnector {
        private final int rank;
        private final List<Completion> completions = new ArrayList<>();

        Worker(WorkerContext context) {
            this.rank = context.rank().rank();
        }

        @Override
        public void beginStep(WorkerStep step, EncoderCache cache) {
            step.revoked().forEach(id -> complete(id, new Completion.Revoked()));
            if (step.plan().isEmpty()) {
                return;
            }
            var in = step.plan().reader();
            for (int n = in.count(8); n > 0; n--) {
                var id = TransferId.read(in);
                complete(id, load(EcItem.read(in), cache));
            }
        }

        private void complete(TransferId id, Completion.Result result) {
            completions.add(new Completion(id, rank, result));
        }

        private Completion.Result load(EcItem item, EncoderCache cache) {
            if (cache.get(item.hash()).isPresent()) {
                return new Completion.Completed(0);
            }
            var room = cache.allocate(item);
            if (!fill(item.hash(), room)) {
                cache.discard(item.hash());
                return new Completion.Failed(new Failure(ErrorCode.MISS, "evicted"), List.of());
            }
            cache.publish(item.hash());
            return new Completion.Completed(room.bytes());
        }

        @Override
        public void save(EcItem item, EncoderOutput output) {
            keep(item.hash(), output);
        }

        @Override
        public void endStep(WorkerStep step) {}

        @Override
        public StepReport report(WorkerStep step) {
            var told = List.copyOf(completions);
            completions.clear();
            return new StepReport(rank, step.number(), told, Payload.EMPTY, Stats.EMPTY, List.of());
        }

        @Override
        public void close() {}
    }
}
