// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.Halves;
import io.kvferry.tck.Patience;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// Drives the two halves of a KV connector through the documented life cycle, without an engine. A
/// test controls each step, and the harness checks after it that the connector kept to the
/// contract.
///
/// It throws [AssertionError] for: a byte that differs from the expected content of its token; a
/// write to a block that was not assigned; a completion that is reported twice, for another rank or
/// for an unknown id; a hit beyond the prompt; use of a view after its call; a call that exceeds
/// its limit. Plans and reports are serialised.
///
/// Threading: everything on the test's thread, which stands for the scheduler thread and all step
/// threads.
public final class ConnectorHarness implements AutoCloseable {
    private final HarnessShape shape;
    private final ConnectorCapabilities capabilities;
    private final HarnessHalves halves;
    private final SchedulerConnector scheduler;
    private final List<WorkerConnector> workers;
    private final HarnessMemory memory;
    private final HarnessPool pool;
    private final HarnessWorkers ranks;
    private final ReportMerger merger;
    private final HarnessTables tables;
    private final HarnessChecks checks;
    private final HarnessRights rights;
    private final HarnessBreaker breaker;
    private final HarnessNews news = new HarnessNews();
    private final HarnessSignal signal = new HarnessSignal();
    private final Map<String, HarnessRequest> requests = new LinkedHashMap<>();
    private final List<HarnessViews.Scheduled> scheduled = new ArrayList<>();
    private final List<HarnessRequest> syncNext = new ArrayList<>();
    private final List<String> preempted = new ArrayList<>();
    private Payload lastPlan = Payload.EMPTY;
    private long step;
    private boolean failForward;
    private final Set<String> failing = new HashSet<>();
    private boolean memoryClosed;

    private ConnectorHarness(
            KvConnectorProvider provider,
            ConnectorConfig config,
            HarnessShape shape,
            HostServices host,
            long seed) {
        this.shape = shape;
        capabilities = provider.capabilities(config, host);
        memory = new HarnessMemory(shape);
        pool = new HarnessPool(shape, memory, seed);
        merger = new ReportMerger(shape.ranks());
        try {
            halves = HarnessHalves.open(provider, config, shape, signal.with(host), memory, pool);
        } catch (RuntimeException | Error e) {
            memory.close();
            throw e;
        }
        scheduler = halves.scheduler();
        workers = halves.workers();
        ranks = new HarnessWorkers(workers, memory, capabilities);
        tables = new HarnessTables(shape, pool);
        checks = new HarnessChecks(shape, memory, pool);
        rights = new HarnessRights(shape, scheduler, pool, tables, checks);
        breaker = new HarnessBreaker(memory);
        pool.holdsAre(id -> rights.openHolds().contains(id));
    }

    /// Opens the halves of a connector, in vLLM's order: scheduler, pool, workers with their
    /// regions, handshakes.
    ///
    /// @param seed orders the blocks of the pool
    public static ConnectorHarness open(
            KvConnectorProvider provider,
            ConnectorConfig config,
            HarnessShape shape,
            HostServices host,
            long seed) {
        return new ConnectorHarness(provider, config, shape, host, seed);
    }

    /// The same with defaults for the rest.
    public static ConnectorHarness open(
            KvConnectorProvider provider,
            KvRole role,
            String engineId,
            Map<String, Object> options,
            HarnessShape shape) {
        var config = ConnectorConfig.of(provider.name(), role, engineId, options);
        return open(provider, config, shape, HostServices.NONE, 1);
    }

    /// Sets how long a signal may come after the completion that it is for.
    public void signalsWithin(Duration limit) {
        signal.within(limit);
    }

    public HarnessShape shape() {
        return shape;
    }

    public ConnectorCapabilities capabilities() {
        return capabilities;
    }

    public SchedulerConnector scheduler() {
        return scheduler;
    }

    public List<WorkerConnector> workers() {
        return workers;
    }

    /// Every completion as ranks reported it, in order.
    public List<Completion> completions() {
        return List.copyOf(news.completions);
    }

    /// Merged completions that the engine would act on, in order.
    public List<Completion> ended() {
        return List.copyOf(news.ended);
    }

    public List<CacheEvent> events() {
        return List.copyOf(news.events);
    }

    /// All figures so far, of both halves and all ranks.
    public Stats stats() {
        return news.stats();
    }

    /// The plan of the last step.
    public Payload lastPlan() {
        return lastPlan;
    }

    public List<TransferId> openHolds() {
        return rights.openHolds();
    }

    public List<TransferId> openLeases() {
        return pool.openLeases();
    }

    /// Leases taken since the start.
    public int leasesTaken() {
        return pool.leasesTaken();
    }

    /// How often the connector woke its host.
    public int wakes() {
        return signal.count();
    }

    public int freeBlocks() {
        return pool.freeBlocks();
    }

    /// A request enters the engine.
    public HarnessRequest submit(String id, int[] prompt, String salt, TransferParams params) {
        var request = new HarnessRequest(id, prompt, salt, params, shape, shape.namespace());
        requests.put(id, request);
        scheduler.onRequest(request.view());
        return request;
    }

    public HarnessRequest submit(String id, int[] prompt) {
        return submit(id, prompt, "", TransferParams.EMPTY);
    }

    /// Asks once, and checks that the answer is a legal one. A refusal ([KvFerryException]) counts
    /// as a miss.
    public LookupResult lookup(HarnessRequest request, int localTokens) {
        LookupResult answer;
        try {
            answer = scheduler.lookup(request.view(), localTokens);
        } catch (KvFerryException e) {
            return LookupResult.MISS;
        }
        if (answer instanceof LookupResult.Hit(int tokens, LoadMode mode, _)) {
            HarnessRules.checkHit(shape, capabilities, request, localTokens, tokens, mode);
        }
        return answer;
    }

    /// Asks until the answer is definite, with idle steps in between.
    public LookupResult lookupSettled(HarnessRequest request, int localTokens, Duration limit) {
        long end = System.nanoTime() + limit.toNanos();
        var answer = lookup(request, localTokens);
        while (answer instanceof LookupResult.Pending(Duration retryAfter)) {
            if (System.nanoTime() > end) {
                throw new AssertionError(
                        "lookup of " + request.id() + " is still pending after " + limit);
            }
            LockSupport.parkNanos(Math.min(retryAfter.toNanos(), 5_000_000));
            step();
            answer = lookup(request, localTokens);
        }
        return answer;
    }

    /// Gives the request blocks for all its tokens. The first `localTokens` are in place; a hit
    /// becomes a load.
    public void allocate(HarnessRequest request, int localTokens, LookupResult answer) {
        int reached = localTokens + (answer instanceof LookupResult.Hit hit ? hit.tokens() : 0);
        tables.open(request, reached);
        for (int rank = 0; rank < shape.ranks(); rank++) {
            for (int layer = 0; layer < memory.layers(rank); layer++) {
                memory.compute(request, rank, layer, 0, localTokens);
            }
        }
        var id = TransferId.load(request.id(), request.attempt);
        var load =
                answer instanceof LookupResult.Hit(int tokens, LoadMode mode, _)
                        ? new LoadAssignment(id, localTokens, localTokens + tokens, mode)
                        : LoadAssignment.none(id);
        request.computed = localTokens;
        request.admitted = true;
        request.loadFailure = Optional.empty();
        if (!load.isEmpty()) {
            rights.load(request, load);
        }
        request.state =
                !load.isEmpty() && load.mode() == LoadMode.ASYNC
                        ? HarnessRequest.State.LOADING
                        : HarnessRequest.State.RUNNING;
        try (var table = new HarnessViews.Table(request.blocks)) {
            scheduler.onAllocated(request.view(), table, load);
        }
        if (!load.isEmpty() && load.mode() == LoadMode.SYNC) {
            syncNext.add(request);
            request.computed = load.toToken();
        }
    }

    /// Looks the request up and gives it blocks, with whatever was found.
    ///
    /// @return tokens that are being loaded
    public int admit(HarnessRequest request) {
        var answer = lookupSettled(request, 0, Duration.ofSeconds(10));
        allocate(request, 0, answer);
        return answer instanceof LookupResult.Hit hit ? hit.tokens() : 0;
    }

    /// The next step computes this many more tokens of the request. A request that was loaded whole
    /// computes its last token again.
    public void schedule(HarnessRequest request, int tokens) {
        if (request.state != HarnessRequest.State.RUNNING) {
            throw new IllegalStateException(request + " cannot be scheduled");
        }
        if (request.computed == request.tokenCount()) {
            request.computed--;
        }
        if (request.admitted && request.load.isPresent() && !syncNext.contains(request)) {
            try (var table = new HarnessViews.Table(request.blocks)) {
                scheduler.onAllocated(
                        request.view(), table, LoadAssignment.none(request.load.get().id()));
            }
            request.load = Optional.empty();
        }
        int count = Math.min(tokens, request.tokenCount() - request.computed);
        scheduled.add(new HarnessViews.Scheduled(request, count, request.admitted));
        request.admitted = false;
    }

    /// The engine generated a token, whose KV the next step can compute.
    public void generate(HarnessRequest request, int token) {
        request.append(token);
        tables.extend(request);
    }

    /// Computes the rest of the prompt in steps of at most `chunk` tokens; a single one in the step
    /// of a synchronous load, since a connector without leases need not save what is computed there
    /// when the request ends at once.
    public void prefill(HarnessRequest request, int chunk) {
        while (request.computed < request.tokenCount()) {
            schedule(request, hasOpenLoad(request) ? 1 : chunk);
            step();
        }
    }

    /// Whether a load of the request has been assigned and not ended.
    public boolean hasOpenLoad(HarnessRequest request) {
        return rights.isLoading(request);
    }

    /// The request loses its blocks at once and starts over.
    public void preempt(HarnessRequest request) {
        if (request.state != HarnessRequest.State.RUNNING || hasOpenLoad(request)) {
            throw new IllegalStateException(request + " cannot be preempted");
        }
        preempted.add(request.id());
        giveBlocksBack(request);
    }

    /// After a failed load: the request gives its blocks back and may be looked up again.
    public void startOver(HarnessRequest request) {
        giveBlocksBack(request);
    }

    private void giveBlocksBack(HarnessRequest request) {
        tables.close(request);
        request.state = HarnessRequest.State.WAITING;
        request.attempt++;
        request.computed = 0;
        request.load = Optional.empty();
        scheduled.removeIf(entry -> entry.request() == request);
        syncNext.remove(request);
    }

    /// Ends the request. A load that is still open is revoked, and its blocks stay until every rank
    /// has answered.
    public FinishDecision finish(HarnessRequest request, FinishReason reason) {
        FinishDecision decision;
        try (var table = new HarnessViews.Table(request.blocks)) {
            decision = scheduler.finish(request.view(), table, reason);
        }
        request.closeView();
        scheduled.removeIf(entry -> entry.request() == request);
        boolean loading = rights.isLoading(request);
        request.state = HarnessRequest.State.FINISHED;
        if (decision instanceof FinishDecision.Hold(TransferId id, _, _)) {
            if (!capabilities.has(ConnectorCapabilities.Feature.HOLD)) {
                throw new AssertionError(
                        "finish of " + request.id() + " answers Hold without claiming HOLD");
            }
            rights.hold(id, request);
        }
        if (loading) {
            syncNext.remove(request);
            revoke(request.load.orElseThrow().id());
        } else {
            tables.close(request);
        }
        requests.remove(request.id());
        return decision;
    }

    /// Revokes a transfer, as the engine does at its deadline or on abort. The workers are told in
    /// the next step. The scheduler half is told alternately before or after that step, so the plan
    /// may still name the transfer.
    public void revoke(TransferId id) {
        rights.revoke(id);
    }

    /// Every hold reaches its deadline.
    public void expireHolds() {
        rights.openHolds().forEach(this::revoke);
    }

    /// Every lease reaches its deadline.
    public void expireLeases() {
        pool.openLeases().forEach(this::revoke);
    }

    /// Reports of this rank reach the scheduler only with [#releaseReports].
    public void delayReports(int rank) {
        news.delay(rank);
    }

    public void releaseReports() {
        news.delay(-1);
    }

    /// In the next step the model fails: nothing of what was scheduled is computed.
    public void failNextForward() {
        failForward = true;
    }

    /// In the next step the model fails for this request alone.
    public void failNext(HarnessRequest request) {
        failing.add(request.id());
    }

    /// The next load that completes on this rank is turned into a failure: the report names all
    /// blocks, and the blocks are overwritten. Anything computed on it in the same step is then
    /// wrong on all ranks.
    public void failNextLoad(int rank) {
        breaker.arm(rank, OptionalInt.empty());
    }

    /// The same, and the report names the last block of a group only.
    public void failNextLoad(int rank, int group) {
        breaker.arm(rank, OptionalInt.of(group));
    }

    /// From now on the blocks of the request are overwritten between the last layer of a step and
    /// its end, `wait` after the last layer's `saveLayer`: what was not taken before is lost.
    public void overwriteBeforeEnd(HarnessRequest request, Duration wait) {
        request.unchecked = true;
        ranks.beforeEnd(rank -> {
            LockSupport.parkNanos(wait.toNanos());
            memory.spoil(request, rank, 0, request.tokenCount());
        });
    }

    /// One engine step with what was scheduled; without a forward pass when that is nothing.
    public MergedReport step() {
        rights.revokeExpiredLeases();
        step++;
        try (var view = new HarnessViews.Step(step, scheduled, preempted)) {
            lastPlan = scheduler.buildPlan(view);
        }
        var work = List.copyOf(scheduled);
        var sync = List.copyOf(syncNext);
        var revoked = rights.takeRevocations();
        scheduled.clear();
        syncNext.clear();
        preempted.clear();
        if (failForward) {
            work.forEach(entry -> failing.add(entry.request().id()));
            failForward = false;
        }
        var notComputed = Set.copyOf(failing);
        failing.clear();
        var inVain = breaker.inVain(sync);
        var reports =
                breaker.strike(
                        ranks.run(step, lastPlan, revoked, work, sync, inVain, notComputed),
                        requests.values());
        rights.sendLateNotices();
        for (var entry : work) {
            var request = entry.request();
            request.computed += notComputed.contains(request.id()) ? 0 : entry.tokens();
        }
        if (capabilities.has(Feature.SIGNALS)) {
            reports.forEach(signal::requireFor);
        }
        var merged = merger.merge(step, news.take(reports));
        var duplicates = merger.drainDuplicates();
        if (!duplicates.isEmpty()) {
            throw new AssertionError("completed more than once: " + duplicates);
        }
        var acted = Halves.settle(scheduler, merged);
        news.take(scheduler, capabilities.has(Feature.EVENTS));
        news.ended.addAll(acted.completions());
        acted.completions().forEach(rights::end);
        requests.values().stream()
                .filter(request -> !rights.isLoading(request))
                .forEach(tables::slide);
        checkMemory();
        return acted;
    }

    /// Checks every byte that must not have changed.
    public void checkMemory() {
        checks.mustBeRight(requests.values(), rights::isLoading, "after step " + step);
    }

    /// Fails when a byte of the request's blocks was written.
    public void mustBeUntouched(HarnessRequest request) {
        checks.mustBeUntouched(request);
    }

    /// Overwrites the whole cache, as an engine that goes on with other work does.
    public void scribble() {
        checks.scribble();
    }

    /// What of the cache no longer holds what [#scribble] wrote; empty when all does.
    public String changedSinceScribble() {
        return checks.changedSinceScribble();
    }

    /// Idle steps until the condition holds.
    public void stepUntil(String what, Duration limit, BooleanSupplier condition) {
        Patience.until(what, limit, condition, this::step);
    }

    /// Idle steps until the load of the request has ended one way or the other.
    public void awaitLoad(HarnessRequest request, Duration limit) {
        stepUntil(
                "end of the load of " + request,
                limit,
                () -> request.state != HarnessRequest.State.LOADING);
    }

    /// Idle steps until nothing is open but holds: loads, leases, revocations, pending work.
    public void settle(Duration limit) {
        step();
        stepUntil(
                "quiet",
                limit,
                () ->
                        rights.areQuiet()
                                && scheduler.pendingWork().filter(Deadline::passed).isEmpty());
    }

    /// Closes the halves, workers first, then frees the memory. Idempotent.
    @Override
    public void close() {
        closeHalves();
        if (!memoryClosed) {
            memoryClosed = true;
            memory.close();
        }
    }

    /// Closes the halves and keeps the memory.
    public void closeHalves() {
        halves.close();
    }
}
