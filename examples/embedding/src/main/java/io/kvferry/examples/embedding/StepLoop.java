// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.embedding;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/// An engine's own step loop around a KV connector, without kvferry's engine: one rank, one request
/// at a time, one thread that acts as scheduler and worker in turn. Read [#prefill] from top to
/// bottom: it follows the order of calls in the description of package `io.kvferry.spi.kv`.
///
/// A serving engine also needs what is omitted here: several requests and ranks (merge the
/// completions of all ranks before [SchedulerConnector#onReport]), blocks that a connector keeps
/// after the request (`FinishDecision.Hold`, leases), aborts (`WorkerStep.revoked`), layer-wise
/// calls. A connector that claims a feature which needs them is refused at the start.
///
/// Threading: confined to one thread.
public final class StepLoop implements AutoCloseable {
    private static final Duration STEP_LIMIT = Duration.ofSeconds(30);

    /// What the loop's own engine does: computes tokens `from` to `to` into the blocks.
    @FunctionalInterface
    public interface Compute {
        void tokens(Request request, int from, int to);
    }

    private final CacheNamespace namespace;
    private final KvCacheSpec cache;
    private final Arena memory = Arena.ofShared(); // a connector's own threads may touch it
    private final List<KvRegion> regions = new ArrayList<>();
    private final SchedulerConnector scheduler;
    private final WorkerConnector worker;
    private long step;
    private int requests;

    /// Opens both halves and gives the worker half the cache.
    public StepLoop(
            CacheNamespace namespace,
            KvCacheSpec cache,
            KvConnectorProvider provider,
            ConnectorConfig config) {
        this.namespace = namespace;
        this.cache = cache;
        Features.check(provider.capabilities(config, HostServices.NONE));
        var engine = new EngineInfo("my-model", namespace, cache, 1, 0, System.nanoTime());
        var options = provider.options().read(config.connector(), config.extra());
        scheduler =
                provider.openScheduler(
                        new SchedulerContext(
                                config.connector(), config, options, engine, HostServices.NONE));
        worker =
                provider.openWorker(
                        new WorkerContext(
                                config.connector(),
                                config,
                                options,
                                engine,
                                RankInfo.SINGLE,
                                HostServices.NONE));
        var group = cache.groups().getFirst();
        for (var layer : group.layers()) {
            long bytes = group.blockBytes() * cache.blockCount();
            regions.add(
                    new KvRegion(
                            layer,
                            regions.size(),
                            0,
                            new MemoryRange.Host(memory.allocate(bytes, 4096)),
                            cache.blockCount(),
                            group.blockBytes(),
                            group.blockBytes()));
        }
        worker.registerRegions(regions);
    }

    /// The cache, one region per layer.
    public List<KvRegion> regions() {
        return List.copyOf(regions);
    }

    /// Runs a prompt through: loads what the connector has, computes the rest, saves it.
    ///
    /// @param blocks ids of free blocks, enough for the prompt; free again on return
    /// @return tokens that came from the connector
    public int prefill(int[] prompt, int[] blocks, Compute compute) throws InterruptedException {
        var request = new Request("request-" + requests++, prompt, blocks, namespace);
        scheduler.onRequest(request);
        var hit = lookup(request);
        var id = TransferId.load(request.id(), request.attempt());
        var load =
                hit.map(h -> new LoadAssignment(id, 0, h.tokens(), h.mode()))
                        .orElse(LoadAssignment.none(id));
        scheduler.onAllocated(request, request.blocks(), load); // a promise from here on
        int loaded = 0;
        boolean sync = !load.isEmpty() && load.mode() == LookupResult.LoadMode.SYNC;
        if (!load.isEmpty() && !sync) {
            loaded = await(load, request); // the request is not computed in these steps
            request.computed(loaded);
            scheduler.onAllocated(request, request.blocks(), LoadAssignment.none(id));
        }
        // The step that computes: a synchronous load is done when its beginStep returns.
        int from = sync ? load.toToken() : loaded;
        request.computed(from);
        var report = step(List.of(new Scheduled(request, from, prompt.length - from)), compute);
        if (sync) {
            loaded = loadedTokens(report, load);
            if (loaded < load.toToken()) { // the promise broke: compute what is missing
                request.computed(loaded);
                step(List.of(new Scheduled(request, loaded, prompt.length - loaded)), compute);
            }
        }
        request.computed(prompt.length);
        if (scheduler.finish(request, request.blocks(), FinishReason.STOP)
                instanceof FinishDecision.Hold hold) {
            throw new IllegalStateException("holds are not claimed, got " + hold);
        }
        return loaded;
    }

    /// Asks until the answer is known.
    private Optional<LookupResult.Hit> lookup(Request request) throws InterruptedException {
        var limit = Deadline.in(STEP_LIMIT);
        while (!limit.passed()) {
            switch (scheduler.lookup(request, 0)) {
                case LookupResult.Hit hit -> {
                    return Optional.of(hit);
                }
                case LookupResult.Miss _ -> {
                    return Optional.empty();
                }
                case LookupResult.Pending(Duration retryAfter) ->
                        TimeUnit.NANOSECONDS.sleep(Math.max(retryAfter.toNanos(), 100_000));
            }
        }
        return Optional.empty();
    }

    /// Runs steps without a forward pass until an asynchronous load has ended.
    private int await(LoadAssignment load, Request request) throws InterruptedException {
        var limit = Deadline.in(STEP_LIMIT);
        while (true) {
            var report = step(List.of(), (_, _, _) -> {});
            if (ended(report, load)) {
                return loadedTokens(report, load);
            }
            if (limit.passed()) { // a serving engine revokes the load and continues
                throw new IllegalStateException("the load of " + request.id() + " did not end");
            }
            TimeUnit.MILLISECONDS.sleep(1); // a host with HostServices.wake waits for that instead
        }
    }

    /// One step: plan, worker half, report.
    private MergedReport step(List<Scheduled> scheduled, Compute compute) {
        var view = new Scheduled.Step(++step, scheduled);
        var plan = scheduler.buildPlan(view); // the only thing that passes between the halves
        var now =
                new WorkerStep(
                        step, plan, List.of(), !scheduled.isEmpty(), Deadline.in(STEP_LIMIT));
        worker.beginStep(now);
        for (var part : scheduled) {
            compute.tokens(part.request(), part.from(), part.to());
        }
        worker.endStep(now, Set.of());
        var report = worker.report(now);
        var all =
                report.completions().stream()
                        .map(c -> new Completion(c.id(), Completion.ALL_RANKS, c.result()))
                        .toList(); // of one rank
        var merged = new MergedReport(step, all, List.of(report));
        scheduler.onReport(merged);
        return merged;
    }

    private static boolean ended(MergedReport report, LoadAssignment load) {
        return report.completions().stream().anyMatch(c -> c.id().equals(load.id()));
    }

    /// Tokens before the first block that was not loaded.
    private int loadedTokens(MergedReport report, LoadAssignment load) {
        var result =
                report.completions().stream()
                        .filter(c -> c.id().equals(load.id()))
                        .map(Completion::result)
                        .findFirst()
                        .orElseThrow();
        return switch (result) {
            case Completion.Completed _ -> load.toToken();
            case Completion.Revoked _ -> 0;
            case Completion.Failed(_, var blocks) ->
                    blocks.stream().flatMapToInt(b -> Arrays.stream(b.positions())).min().orElse(0)
                            * cache.blockTokens();
        };
    }

    /// Worker half first, so that it stops touching the memory before that is freed.
    @Override
    public void close() {
        worker.close();
        scheduler.close();
        memory.close();
    }
}
