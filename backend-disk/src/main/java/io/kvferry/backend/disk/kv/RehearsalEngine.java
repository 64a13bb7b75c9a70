// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.DiskConnectorProvider;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.TransferBackends;

import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/// An engine with one rank that computes nothing: both halves of the connector on a folder of their
/// own, and one prompt at a time.
///
/// Threading: one thread.
final class RehearsalEngine implements AutoCloseable {
    private static final String NAME = "rehearsal";
    private static final int LAYERS = 32;
    private static final int BLOCK_TOKENS = 16;

    /// Of one layer. A run of two blocks is then a file that is read in pieces.
    private static final int BLOCK_BYTES = 4 << 10;

    private static final int RUN = 2;

    /// Whole runs, and a block behind them. A prompt of many files has the code that runs for each
    /// file compiled in few prompts.
    private static final int BLOCKS = 32 * RUN + 1;

    private static final int TOKENS = BLOCKS * BLOCK_TOKENS + 1;

    private final Deadline limit;
    private final Semaphore woken = new Semaphore(0);
    private final DiskScheduler scheduler;
    private final DiskWorker worker;
    private final Map<TransferId, Completion.Result> ended = new HashMap<>();
    private long steps;
    private int leases;
    private LookupResult.LoadMode mode = LookupResult.LoadMode.ASYNC; // of the last hit

    /// @param like of the connector that this is for
    RehearsalEngine(OptionValues like, Path folder, Deadline limit) {
        this.limit = limit;
        var extra = extra(like, folder);
        var config = ConnectorConfig.of(DiskConnectorProvider.NAME, KvRole.BOTH, NAME, extra);
        var options = DiskOptions.SCHEMA.read(NAME, extra);
        var host =
                HostServices.of(
                        EventSink.NONE, TransferBackends.NONE, StagingPool.NONE, woken::release);
        var engine = engine();
        scheduler =
                new DiskScheduler(
                        new SchedulerContext(NAME, config, options, engine, host),
                        BlockStore::openScratch,
                        Optional.empty());
        boolean opened = false;
        try {
            worker =
                    new DiskWorker(
                            new WorkerContext(NAME, config, options, engine, RankInfo.SINGLE, host),
                            BlockStore::openScratch,
                            Optional.empty());
            opened = true;
        } finally {
            if (!opened) {
                scheduler.close();
            }
        }
        scheduler.bindBlockPool(new Pool());
        worker.registerRegions(regions());
    }

    /// Buffered: whether direct I/O works is a matter of the connector's own folder.
    private static Map<String, Object> extra(OptionValues like, Path folder) {
        var extra = new LinkedHashMap<String, Object>();
        extra.put(DiskOptions.PATH, folder.toString());
        extra.put("run_blocks", RUN);
        extra.put("load", like.string("load").equals("sync") ? "sync" : "async");
        extra.put("direct", "off");
        extra.put("capacity", 64 << 20); // later prompts evict earlier ones
        extra.put("reserve", 64 << 20);
        extra.put("read_threads", 1);
        extra.put("write_threads", 2);
        if (like.has("secret_file")) {
            extra.put("secret_file", like.path("secret_file").toString());
        }
        return extra;
    }

    private static EngineInfo engine() {
        var layers = IntStream.range(0, LAYERS).mapToObj(layer -> "layer." + layer).toList();
        var group =
                new KvCacheGroup(
                        0,
                        KvCacheGroup.Kind.FULL_ATTENTION,
                        new KvFormat.Heads(DType.UINT8, KvLayout.LBHNC, 1, 8),
                        layers,
                        BLOCK_TOKENS,
                        BLOCK_BYTES);
        var namespace =
                new CacheNamespace(
                        NAME, "none", DType.UINT8, KvLayout.LBHNC, 1, BLOCK_TOKENS, 1, 1, "");
        return new EngineInfo(
                NAME, namespace, new KvCacheSpec(List.of(group), 2 * BLOCKS), 1, 0, 1);
    }

    private static List<KvRegion> regions() {
        long layerBytes = 2L * BLOCKS * BLOCK_BYTES;
        // A thread that hangs in the file system keeps it alive.
        var memory = Arena.ofAuto().allocate(LAYERS * layerBytes, 4096);
        return IntStream.range(0, LAYERS)
                .mapToObj(layer ->
                        new KvRegion(
                                "layer." + layer,
                                layer,
                                0,
                                new MemoryRange.Host(
                                        memory.asSlice(layer * layerBytes, layerBytes)),
                                2 * BLOCKS,
                                BLOCK_BYTES,
                                BLOCK_BYTES))
                .toList();
    }

    /// Computes a prompt and waits until it is saved.
    ///
    /// @throws KvFerryException when it cannot be saved
    void save(int prompt) throws InterruptedException {
        var request = new Request("save-" + prompt, prompt);
        var table = new Table(0);
        scheduler.onRequest(request);
        if (lookUp(request) > 0) {
            throw failed(request, "is there already");
        }
        scheduler.onAllocated(
                request, table, LoadAssignment.none(TransferId.load(request.id(), 0)));
        step(Optional.of(new Scheduled(request, table)));
        scheduler.finish(request, table, FinishReason.LENGTH);
        while (leases > 0) {
            await();
        }
        check(request);
    }

    /// Loads a prompt that was saved.
    ///
    /// @throws KvFerryException when it is not found or cannot be loaded
    void load(int prompt) throws InterruptedException {
        var request = new Request("load-" + prompt, prompt);
        var table = new Table(BLOCKS);
        scheduler.onRequest(request);
        int tokens = lookUp(request);
        if (tokens != BLOCKS * BLOCK_TOKENS) {
            throw failed(request, "has " + tokens + " tokens of " + BLOCKS * BLOCK_TOKENS);
        }
        var id = TransferId.load(request.id(), 0);
        scheduler.onAllocated(request, table, new LoadAssignment(id, 0, tokens, mode));
        step(Optional.empty());
        while (!ended.containsKey(id)) {
            await();
        }
        check(request);
        scheduler.finish(request, table, FinishReason.LENGTH);
    }

    /// Tokens that are there.
    private int lookUp(Request request) throws InterruptedException {
        while (true) {
            switch (scheduler.lookup(request, 0)) {
                case LookupResult.Miss _ -> {
                    return 0;
                }
                case LookupResult.Hit hit -> {
                    mode = hit.mode();
                    return hit.tokens();
                }
                case LookupResult.Pending pending -> {
                    checkTime();
                    TimeUnit.NANOSECONDS.sleep(pending.retryAfter().toNanos());
                }
            }
        }
    }

    private void await() throws InterruptedException {
        if (!woken.tryAcquire(limit.remainingNanos(), TimeUnit.NANOSECONDS)) {
            checkTime();
        }
        step(Optional.empty());
    }

    private void checkTime() {
        if (limit.passed()) {
            throw new KvFerryException(ErrorCode.TIMEOUT, "a rehearsal took too long");
        }
    }

    private void check(Request request) {
        ended.forEach((id, result) -> {
            if (!(result instanceof Completion.Completed)) {
                throw failed(request, id + " ended with " + result);
            }
        });
        ended.clear();
    }

    private static KvFerryException failed(Request request, String what) {
        return new KvFerryException(
                ErrorCode.INTERNAL, "prompt " + request.id() + " of a rehearsal: " + what);
    }

    private void step(Optional<Scheduled> scheduled) {
        long number = ++steps;
        var plan = scheduler.buildPlan(new Step(number, scheduled));
        var step = new WorkerStep(number, plan, List.of(), scheduled.isPresent(), limit);
        worker.beginStep(step);
        worker.endStep(step, Set.of());
        var report = worker.report(step);
        report.completions().forEach(each -> ended.put(each.id(), each.result()));
        scheduler.onReport(new MergedReport(number, report.completions(), List.of(report)));
        scheduler.drainStats();
        scheduler.drainEvents();
    }

    @Override
    public void close() {
        try {
            worker.close();
        } finally {
            scheduler.close();
        }
    }

    private record Request(String id, int prompt) implements RequestView {
        @Override
        public int tokenCount() {
            return TOKENS;
        }

        @Override
        public int promptTokenCount() {
            return TOKENS;
        }

        @Override
        public int token(int position) {
            return position;
        }

        @Override
        public int blockHashCount() {
            return BLOCKS;
        }

        @Override
        public BlockHash blockHash(int block) {
            return new BlockHash(prompt, block, BLOCKS, BLOCK_BYTES);
        }

        @Override
        public int computedTokenCount() {
            return TOKENS;
        }

        @Override
        public TransferParams params() {
            return TransferParams.EMPTY;
        }

        @Override
        public String cacheSalt() {
            return "";
        }

        @Override
        public int attempt() {
            return 0;
        }
    }

    /// Consecutive blocks.
    private record Table(int first) implements BlockTable {
        @Override
        public int groups() {
            return 1;
        }

        @Override
        public int count(int group) {
            return BLOCKS;
        }

        @Override
        public int block(int group, int position) {
            return first + position;
        }
    }

    private record Scheduled(RequestView request, BlockTable blocks)
            implements StepView.ScheduledRequest {
        @Override
        public boolean admitted() {
            return true;
        }

        @Override
        public int computedTokens() {
            return 0;
        }

        @Override
        public int scheduledTokens() {
            return TOKENS;
        }
    }

    private record Step(long number, Optional<Scheduled> request) implements StepView {
        @Override
        public int scheduledCount() {
            return request.isPresent() ? 1 : 0;
        }

        @Override
        public ScheduledRequest scheduled(int index) {
            return request.orElseThrow();
        }

        @Override
        public List<String> preempted() {
            return List.of();
        }
    }

    private final class Pool implements BlockPool {
        @Override
        public Lease lease(TransferId id, int group, int[] blocks, Deadline deadline) {
            leases++;
            return new Lease() {
                private boolean closed;

                @Override
                public Deadline deadline() {
                    return deadline;
                }

                @Override
                public boolean renew(Deadline later) {
                    return false;
                }

                @Override
                public void close() {
                    leases -= closed ? 0 : 1;
                    closed = true;
                }
            };
        }

        @Override
        public Optional<Deadline> renewHold(TransferId id, Deadline deadline) {
            return Optional.empty();
        }

        @Override
        public int freeBlocks() {
            return 2 * BLOCKS;
        }
    }
}
