// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.vllm;

import io.kvferry.backend.disk.kv.DiskOptions;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockLease;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockPoolUser;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.ResettableCache;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferResult;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.wire.Payload;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/// The scheduler half on ExampleConnector folders: a prompt is there as a whole or not at all.
///
/// A request with a tenant salt is neither loaded nor saved, because the layout has no place for
/// one. Lookups open files on the scheduler thread: a layout for debugging.
public final class ExampleScheduler implements SchedulerConnector, BlockPoolUser, ResettableCache {
    private final SchedulerContext context;
    private final List<ExampleFolder> folders;
    private final int blockTokens;
    private final boolean loads;
    private final boolean saves;
    private final LoadMode mode;
    private final Duration lease;
    private final Map<String, Tracked> requests = new HashMap<>();
    private final Map<TransferId, BlockLease> leases = new HashMap<>();
    private List<ExampleMove> planned = new ArrayList<>();
    private Optional<BlockPool> pool = Optional.empty();

    private static final class Tracked {
        boolean loading;
        boolean loadFailed;
        boolean saved;
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] for more than one group
    public ExampleScheduler(SchedulerContext context) {
        this.context = context;
        this.folders =
                IntStream.range(0, context.worldSize())
                        .mapToObj(rank ->
                                folder(
                                        context.options().path(DiskOptions.PATH),
                                        context.cache(),
                                        context.namespace(),
                                        rank,
                                        context.worldSize()))
                        .toList();
        this.blockTokens = context.cache().blockTokens();
        this.loads =
                context.config().role().consumes()
                        && !context.options().string("load").equals("none");
        this.saves =
                context.config().role().produces()
                        && context.options().string("save").equals("lease");
        this.mode =
                context.options().string("load").equals("sync") ? LoadMode.SYNC : LoadMode.ASYNC;
        this.lease = context.options().duration("lease");
    }

    /// The folders of one rank. vLLM's ranks overwrite each other's files; with several ranks each
    /// gets a root of its own here, `<root>/rank-<n>`, which vLLM can be pointed at.
    static ExampleFolder folder(
            Path root, KvCacheSpec cache, CacheNamespace namespace, int rank, int ranks) {
        var kind = cache.groups().getFirst().kind();
        if (kind != KvCacheGroup.Kind.FULL_ATTENTION) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "the layout vllm-example keeps whole prompts; the model has " + kind);
        }
        if (cache.groups().size() != 1) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "layout vllm-example has one group, not "
                            + cache.groups().size()
                            + "; use layout kvferry");
        }
        Path own = ranks == 1 ? root : root.resolve("rank-" + rank);
        return new ExampleFolder(own, cache, namespace);
    }

    @Override
    public void bindBlockPool(BlockPool blockPool) {
        pool = Optional.of(blockPool);
    }

    @Override
    public void onRequest(RequestView request) {
        requests.put(request.id(), new Tracked());
    }

    @Override
    public LookupResult lookup(RequestView request, int localTokens) {
        Tracked tracked = requests.get(request.id());
        int kept = ExampleFolder.align(request.promptTokenCount(), blockTokens);
        if (!loads
                || tracked == null
                || tracked.loadFailed
                || !request.cacheSalt().isEmpty()
                || kept <= localTokens) {
            return LookupResult.miss();
        }
        String digest = digest(request, kept);
        return folders.stream().allMatch(folder -> folder.holds(digest, kept))
                ? LookupResult.hit(kept - localTokens, mode, context.instance(), Tier.DISK)
                : LookupResult.miss();
    }

    private String digest(RequestView request, int kept) {
        var tokens = new int[kept];
        for (int i = 0; i < kept; i++) {
            tokens[i] = request.token(i);
        }
        var items = new ArrayList<String>();
        for (int block = 0; block < request.blockHashCount(); block++) {
            request.extraKeys(block).stream()
                    .filter(key -> !items.contains(key))
                    .forEach(items::add);
        }
        return ExampleFolder.digest(tokens, kept, items);
    }

    @Override
    public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
        Tracked tracked = requests.get(request.id());
        if (load.isEmpty() || tracked == null) {
            return;
        }
        tracked.loading = true;
        int kept = ExampleFolder.align(request.promptTokenCount(), blockTokens);
        int first = load.fromToken() / blockTokens;
        planned.add(
                new ExampleMove(
                        load.id(),
                        true,
                        load.mode() == LoadMode.SYNC,
                        digest(request, kept),
                        kept,
                        first,
                        blocks.copy(0, first, load.toToken() / blockTokens)));
    }

    @Override
    public Payload buildPlan(StepView step) {
        for (int i = 0; saves && pool.isPresent() && i < step.scheduledCount(); i++) {
            planSave(step.scheduled(i), pool.get());
        }
        Payload encoded = ExampleMove.encode(planned);
        planned = new ArrayList<>();
        return encoded;
    }

    /// Once, in the step that completes the kept part of the prompt.
    private void planSave(StepView.ScheduledRequest scheduled, BlockPool blockPool) {
        RequestView request = scheduled.request();
        Tracked tracked = requests.get(request.id());
        int kept = ExampleFolder.align(request.promptTokenCount(), blockTokens);
        if (tracked == null
                || tracked.saved
                || tracked.loading
                || kept == 0
                || !request.cacheSalt().isEmpty()
                || scheduled.computedTokens() + scheduled.scheduledTokens() < kept) {
            return;
        }
        tracked.saved = true;
        int[] blocks = scheduled.blocks().copy(0, 0, kept / blockTokens);
        var id = TransferId.save(request.id(), request.attempt(), 1);
        leases.put(id, blockPool.lease(id, 0, blocks, Deadline.in(lease)));
        planned.add(new ExampleMove(id, false, false, digest(request, kept), kept, 0, blocks));
    }

    @Override
    public MergedReport onReport(MergedReport report) {
        for (Completion completion : report.completions()) {
            Optional.ofNullable(leases.remove(completion.id())).ifPresent(BlockLease::close);
            Tracked tracked = requests.get(completion.id().subject());
            if (tracked != null && completion.id().direction() == TransferId.Direction.LOAD) {
                tracked.loading = false;
                tracked.loadFailed |= completion.result() instanceof TransferResult.Failed;
                tracked.saved |= completion.result() instanceof TransferResult.Completed;
            }
        }
        return report;
    }

    @Override
    public void onRevoked(TransferId id) {
        planned.removeIf(move -> move.id().equals(id));
    }

    @Override
    public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
        requests.remove(request.id());
        return FinishDecision.release();
    }

    @Override
    public CompletionStage<Boolean> resetCache(Deadline limit) {
        var done = new CompletableFuture<Boolean>();
        Thread.ofPlatform()
                .daemon()
                .name("disk-reset")
                .start(() -> {
                    try {
                        folders.forEach(ExampleFolder::clear);
                        done.complete(true);
                    } catch (KvFerryException _) {
                        done.complete(false); // the folder could not be listed
                    }
                });
        return done.completeOnTimeout(
                false, Math.max(1, limit.remainingNanos()), TimeUnit.NANOSECONDS);
    }

    @Override
    public void close() {
        leases.values().forEach(BlockLease::close);
        leases.clear();
        requests.clear();
    }
}
