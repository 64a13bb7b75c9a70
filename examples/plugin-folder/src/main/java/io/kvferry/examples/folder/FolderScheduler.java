// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.folder;

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
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.wire.Payload;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/// Decides what is loaded and saved. Searching for files is I/O and runs on its own thread;
/// meanwhile the engine is told to ask again.
///
/// Threading: the engine's scheduler thread; searches touch only what is passed to them.
final class FolderScheduler implements SchedulerConnector {
    private static final LookupResult ASK_AGAIN = new LookupResult.Pending(Duration.ofMillis(1));

    private final SchedulerContext context;
    private final BlockFolder folder;
    private final int blockTokens;
    private final ExecutorService searchers = Executors.newVirtualThreadPerTaskExecutor();
    private final Map<String, CompletableFuture<LookupResult>> searches = new HashMap<>();
    private final Map<String, Integer> savedBlocks = new HashMap<>();
    private final Set<String> loading = new HashSet<>();
    private final Set<String> failed = new HashSet<>();
    private FolderPlan plan = new FolderPlan();

    FolderScheduler(SchedulerContext context) {
        this.context = context;
        this.folder =
                new BlockFolder(context.options().path("folder"), context.engine().namespace());
        this.blockTokens = context.engine().cache().blockTokens();
    }

    @Override
    public LookupResult lookup(RequestView request, int localTokens) {
        if (!context.config().role().consumes() || failed.contains(request.id())) {
            return LookupResult.MISS; // after a failed load nothing is promised again
        }
        var search = searches.computeIfAbsent(request.id(), _ -> start(request, localTokens));
        if (!search.isDone()) {
            return ASK_AGAIN;
        }
        searches.remove(request.id()); // an answer is used once; the next lookup searches again
        return search.join();
    }

    private CompletableFuture<LookupResult> start(RequestView request, int localTokens) {
        int from = localTokens / blockTokens;
        // A synchronous hit leaves at least one token to compute.
        int to = Math.min(request.blockHashCount(), (request.tokenCount() - 1) / blockTokens);
        var hashes = hashes(request, from, Math.max(from, to));
        return CompletableFuture.supplyAsync(() -> search(hashes), searchers);
    }

    private LookupResult search(List<BlockHash> hashes) {
        int found = 0;
        while (found < hashes.size()
                && folder.contains(hashes.get(found), context.engine().worldSize())) {
            found++;
        }
        return found == 0
                ? LookupResult.MISS
                : LookupResult.hit(
                        found * blockTokens, LoadMode.SYNC, context.instance(), Tier.DISK);
    }

    private static List<BlockHash> hashes(RequestView request, int from, int to) {
        var hashes = new ArrayList<BlockHash>(to - from);
        for (int block = from; block < to; block++) {
            hashes.add(request.blockHash(block));
        }
        return hashes;
    }

    @Override
    public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
        if (!load.isEmpty()) {
            int from = load.fromToken() / blockTokens;
            int to = load.toToken() / blockTokens;
            plan.loads()
                    .add(
                            new FolderPlan.Job(
                                    load.id(),
                                    from,
                                    hashes(request, from, to),
                                    blocks.copy(0, from, to)));
            loading.add(request.id());
            savedBlocks.put(request.id(), to); // what came from the folder need not go back
        }
    }

    @Override
    public Payload buildPlan(StepView step) {
        step.preempted().forEach(savedBlocks::remove);
        for (int i = 0; i < step.scheduledCount() && context.config().role().produces(); i++) {
            var scheduled = step.scheduled(i);
            var request = scheduled.request();
            if (loading.contains(request.id())) {
                continue; // the load may fail on some rank; blocks after it are saved a step later
            }
            // Fewer when the model left the request out of the step that was to compute them.
            int from =
                    Math.min(
                            savedBlocks.getOrDefault(request.id(), 0),
                            scheduled.computedTokens() / blockTokens);
            int to =
                    Math.min(
                            request.blockHashCount(),
                            (scheduled.computedTokens() + scheduled.scheduledTokens())
                                    / blockTokens);
            if (from < to) {
                plan.saves()
                        .add(
                                new FolderPlan.Job(
                                        TransferId.save(request.id(), request.attempt()),
                                        from,
                                        hashes(request, from, to),
                                        scheduled.blocks().copy(0, from, to)));
                savedBlocks.put(request.id(), to);
            }
        }
        var encoded = plan.encode();
        plan = new FolderPlan();
        return encoded;
    }

    @Override
    public void onReport(MergedReport report) {
        for (var completion : report.completions()) {
            var request = completion.id().subject();
            loading.remove(request);
            if (completion.result() instanceof Completion.Failed) {
                failed.add(request);
                savedBlocks.remove(request); // the engine computes them, and they are saved again
            }
        }
    }

    @Override
    public void onRevoked(TransferId id) {
        plan.loads().removeIf(job -> job.id().equals(id));
    }

    @Override
    public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
        searches.remove(request.id());
        savedBlocks.remove(request.id());
        loading.remove(request.id());
        failed.remove(request.id());
        return FinishDecision.RELEASE; // saves end with their step, so nothing needs to be held
    }

    @Override
    public void close() {
        searchers.close();
    }
}
