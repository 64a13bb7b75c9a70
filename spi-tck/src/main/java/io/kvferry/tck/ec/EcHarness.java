// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.ec;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.Halves;
import io.kvferry.tck.Mix;
import io.kvferry.tck.Patience;
import io.kvferry.tck.harness.HarnessShape;
import io.kvferry.tck.harness.HarnessSignal;
import io.kvferry.tck.harness.ReportMerger;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// Drives the two halves of an encoder-cache connector without an engine, step by step, with an
/// encoder cache of its own on each rank. What an item's bytes must be is a function of its hash.
///
/// Threading: everything on the test's thread.
public final class EcHarness implements AutoCloseable {
    private final ConnectorCapabilities capabilities;
    private final EcSchedulerConnector scheduler;
    private final List<EcWorkerConnector> workers = new ArrayList<>();
    private final List<EcSlab> caches;
    private final ReportMerger merger;
    private final Map<EcItem, Boolean> encoded = new LinkedHashMap<>();
    private final List<TransferId> revocations = new ArrayList<>();
    private final Set<TransferId> open = new HashSet<>();
    private final Set<TransferId> holds = new LinkedHashSet<>();
    private final Set<String> submitted = new HashSet<>();
    private final List<Completion> ended = new ArrayList<>();
    private final List<CacheEvent> events = new ArrayList<>();
    private final Map<String, Integer> attempts = new HashMap<>();
    private final Map<TransferId, EcItem> loading = new HashMap<>();

    /// Items of running requests, and of ended ones that are held.
    private final Map<String, List<EcItem>> kept = new HashMap<>();

    private Payload lastPlan = Payload.EMPTY;
    private Stats stats = Stats.EMPTY;
    private long step;
    private boolean closed;

    private final HarnessSignal signal = new HarnessSignal();

    private EcHarness(
            EcConnectorProvider provider,
            ConnectorConfig config,
            HarnessShape shape,
            HostServices host) {
        capabilities = provider.capabilities(config, host);
        merger = new ReportMerger(shape.ranks());
        caches = EcSlab.ofRanks(shape.ranks());
        var options = provider.options().read("options of " + provider.name(), config.extra());
        var engine = shape.engine(System.nanoTime());
        var heard = signal.with(host);
        scheduler =
                provider.openScheduler(
                        new SchedulerContext(provider.name(), config, options, engine, heard));
        for (int rank = 0; rank < shape.ranks(); rank++) {
            var worker =
                    provider.openWorker(
                            new WorkerContext(
                                    provider.name(),
                                    config,
                                    options,
                                    engine,
                                    new RankInfo(rank, shape.ranks(), rank, shape.ranks(), 0, 1),
                                    heard));
            workers.add(worker);
            var cache = caches.get(rank);
            if (capabilities.has(Feature.PROVIDES_MEMORY)) {
                worker.provideMemory(EcSlab.BYTES).ifPresent(cache::lieIn);
            }
            worker.registerMemory(cache.memory());
        }
        if (capabilities.has(Feature.HANDSHAKE)) {
            try {
                Halves.exchangeHandshakes(scheduler, workers);
            } catch (RuntimeException e) {
                close();
                throw e;
            }
        }
    }

    /// Opens the halves of a connector.
    public static EcHarness open(
            EcConnectorProvider provider,
            ConnectorConfig config,
            HarnessShape shape,
            HostServices host) {
        return new EcHarness(provider, config, shape, host);
    }

    /// Sets how long a signal may come after the completion that it is for.
    public void signalsWithin(Duration limit) {
        signal.within(limit);
    }

    private static byte expected(EcItem item, long index) {
        return (byte) Mix.mix(item.hash().hashCode() * 31L + item.embeddings() * 7L + index);
    }

    public EcSchedulerConnector scheduler() {
        return scheduler;
    }

    /// How often the connector woke its host.
    public int wakes() {
        return signal.count();
    }

    public List<EcWorkerConnector> workers() {
        return List.copyOf(workers);
    }

    /// Merged completions, in order.
    public List<Completion> ended() {
        return List.copyOf(ended);
    }

    public Payload lastPlan() {
        return lastPlan;
    }

    public Stats stats() {
        return stats;
    }

    public List<CacheEvent> events() {
        return List.copyOf(events);
    }

    public List<TransferId> openHolds() {
        return List.copyOf(holds);
    }

    /// A request with items enters the engine.
    public void submit(String requestId, List<EcItem> items, TransferParams params) {
        submitted.add(requestId);
        scheduler.onRequest(requestId, items, params);
    }

    /// Asks, with idle steps in between, until the answer is definite.
    public LookupResult lookupSettled(EcItem item, Duration limit) {
        long end = System.nanoTime() + limit.toNanos();
        while (true) {
            var answer = scheduler.lookup(item);
            switch (answer) {
                case LookupResult.Hit hit -> {
                    hit.defect(capabilities, item.embeddings())
                            .ifPresent(wrong -> {
                                throw new AssertionError(item + ": " + wrong);
                            });
                    return hit;
                }
                case LookupResult.Miss miss -> {
                    return miss;
                }
                case LookupResult.Pending pending ->
                        LockSupport.parkNanos(Math.min(5_000_000, pending.retryAfter().toNanos()));
            }
            if (System.nanoTime() > end) {
                throw new AssertionError("lookup of " + item + " is still pending after " + limit);
            }
            step();
        }
    }

    /// An item that the next step encodes and saves; nothing when the cache has it already, as in
    /// an engine.
    public void encode(EcItem item) {
        if (caches.getFirst().isCached(item.hash())) {
            return;
        }
        caches.forEach(cache -> cache.reserve(item));
        scheduler.onAllocated(item, Optional.empty());
        encoded.put(item, true);
    }

    /// Room for an item that is to be loaded. Loading one that the cache has is nothing that an
    /// engine does, and harmless.
    public TransferId load(EcItem item) {
        var id = TransferId.load(item.hash(), attempts.merge(item.hash(), 1, Integer::sum));
        open.add(id);
        loading.put(id, item);
        if (!caches.getFirst().isCached(item.hash())) {
            caches.forEach(cache -> cache.reserve(item));
        }
        scheduler.onAllocated(item, Optional.of(id));
        return id;
    }

    /// The engine's cache drops an item that nobody uses.
    public void free(EcItem item) {
        caches.forEach(cache -> cache.release(item.hash()));
        scheduler.onFreed(item.hash());
    }

    public void revoke(TransferId id) {
        revocations.add(id);
    }

    /// Every hold reaches its deadline.
    public void expireHolds() {
        holds.forEach(this::revoke);
    }

    /// One engine step: what was allocated is encoded or loaded.
    public void step() {
        step++;
        lastPlan = scheduler.buildPlan(step);
        var revoked = List.copyOf(revocations);
        var items = List.copyOf(encoded.keySet());
        revocations.clear();
        encoded.clear();
        var reports = new ArrayList<StepReport>();
        for (int rank = 0; rank < workers.size(); rank++) {
            var worker = workers.get(rank);
            var plan =
                    lastPlan.isEmpty()
                            ? Payload.EMPTY
                            : new Payload(lastPlan.version(), lastPlan.bytes().clone());
            var view =
                    new WorkerStep(
                            step,
                            plan,
                            revoked,
                            !items.isEmpty(),
                            Deadline.in(Patience.STEP_LIMIT));
            worker.beginStep(view, caches.get(rank));
            for (var item : items) {
                save(worker, caches.get(rank), item);
            }
            worker.endStep(view);
            for (var item : items) {
                if (!isKept(item)) { // the engine may give the rows to another item at once
                    caches.get(rank).release(item.hash());
                }
            }
            reports.add(worker.report(view));
        }
        caches.forEach(EcSlab::check);
        for (var item : items) {
            if (isKept(item)) {
                kept.computeIfAbsent(item.requestId(), _ -> new ArrayList<>()).add(item);
            } else {
                scheduler.onFreed(item.hash());
            }
        }
        if (capabilities.has(Feature.SIGNALS)) {
            reports.forEach(signal::requireFor);
        }
        revoked.forEach(scheduler::onRevoked);
        for (var report : reports) {
            stats = stats.merge(report.stats());
            events.addAll(report.events());
        }
        var merged = Halves.settle(scheduler, merger.merge(step, reports));
        stats = stats.merge(scheduler.drainStats());
        if (capabilities.has(Feature.EVENTS)) {
            events.addAll(scheduler.drainEvents());
        }
        var duplicates = merger.drainDuplicates();
        if (!duplicates.isEmpty()) {
            throw new AssertionError("completed more than once: " + duplicates);
        }
        for (var completion : merged.completions()) {
            if (!open.remove(completion.id()) & !holds.remove(completion.id())) {
                throw new AssertionError(
                        "completion of " + completion.id() + ", which nobody asked for");
            }
            ended.add(completion);
            settled(completion);
        }
    }

    /// Whether the item stays in place after its step, since its request may end in a hold.
    private boolean isKept(EcItem item) {
        return capabilities.has(Feature.HOLD) && submitted.contains(item.requestId());
    }

    private void settled(Completion completion) {
        var id = completion.id();
        if (id.direction() == TransferId.Direction.SAVE) {
            release(id.subject());
            return;
        }
        var item = loading.remove(id);
        if (item != null && !(completion.result() instanceof Completion.Completed)) {
            caches.forEach(cache -> cache.releaseFailed(item.hash()));
        }
    }

    private void release(String requestId) {
        var items = kept.remove(requestId);
        if (items != null) {
            items.forEach(this::free);
        }
    }

    private static void save(EcWorkerConnector worker, EcSlab cache, EcItem item) {
        var room = cache.allocate(item);
        write(item, room.data());
        cache.publish(item.hash());
        worker.save(item, room);
    }

    private static void write(EcItem item, MemorySegment data) {
        for (long i = 0; i < data.byteSize(); i++) {
            data.set(ValueLayout.JAVA_BYTE, i, expected(item, i));
        }
    }

    /// Whether every rank's cache holds the item, and holds the right bytes.
    public boolean holds(EcItem item) {
        int holding = 0;
        for (var cache : caches) {
            var found = cache.get(item.hash());
            if (found.isPresent()) {
                holding++;
                var data = found.get().data();
                for (long i = 0; i < data.byteSize(); i++) {
                    if (data.get(ValueLayout.JAVA_BYTE, i) != expected(item, i)) {
                        throw new AssertionError(
                                "item " + item.hash() + " has a wrong byte at " + i);
                    }
                }
            }
        }
        if (holding != 0 && holding != caches.size()) {
            throw new AssertionError(
                    "item "
                            + item.hash()
                            + " is on "
                            + holding
                            + " of "
                            + caches.size()
                            + " ranks");
        }
        return holding > 0;
    }

    /// Puts an item into every cache, with other bytes than a load would bring.
    public void plant(EcItem item, byte value) {
        for (var cache : caches) {
            cache.reserve(item);
            cache.allocate(item).data().fill(value);
            cache.publish(item.hash());
        }
    }

    /// The first byte of an item in rank 0's cache.
    public Optional<Byte> firstByte(EcItem item) {
        return caches.getFirst()
                .get(item.hash())
                .map(output -> output.data().get(ValueLayout.JAVA_BYTE, 0));
    }

    /// Items with room in some cache that were never published.
    public Set<String> unpublished() {
        var all = new HashSet<String>();
        caches.forEach(cache -> all.addAll(cache.unpublished()));
        return all;
    }

    /// The caches drop everything, which nobody may touch from now on: [#mustBeUntouched] checks
    /// it.
    public void dropAll() {
        caches.forEach(EcSlab::releaseAll);
    }

    /// Fails when something was written to a free place of a cache, or an item asked for that has
    /// none.
    public void mustBeUntouched() {
        caches.forEach(EcSlab::check);
    }

    /// Ends a request, as the engine does before it drops its references.
    public FinishDecision finish(String requestId, FinishReason reason) {
        if (!submitted.remove(requestId)) {
            throw new IllegalStateException("request " + requestId + " never entered");
        }
        var decision = scheduler.finish(requestId, reason);
        if (decision instanceof FinishDecision.Hold(TransferId id, _, _)) {
            if (!capabilities.has(Feature.HOLD)) {
                throw new AssertionError(
                        "finish of " + requestId + " answers Hold without claiming HOLD");
            }
            if (!id.subject().equals(requestId) || !holds.add(id)) {
                throw new AssertionError("finish of " + requestId + " holds under " + id);
            }
        } else {
            release(requestId);
        }
        return decision;
    }

    /// Whether the scheduler half asks for a step now.
    public boolean needsAStep() {
        return scheduler.pendingWork().filter(Deadline::passed).isPresent();
    }

    /// Idle steps until the condition holds.
    public void stepUntil(String what, Duration limit, BooleanSupplier condition) {
        Patience.until(what, limit, condition, this::step);
    }

    /// Steps until this load has ended; how.
    public Completion awaitEnd(TransferId id, Duration limit) {
        stepUntil("end of " + id, limit, () -> !open.contains(id));
        return ended.stream().filter(end -> end.id().equals(id)).findFirst().orElseThrow();
    }

    /// Closes the halves, workers first.
    @Override
    public void close() {
        Halves.closeElsewhere(workers);
        scheduler.close();
        if (!closed) {
            closed = true;
            caches.forEach(EcSlab::close);
        }
    }

    @Override
    public String toString() {
        return "EcHarness[step " + step + ", open " + Arrays.toString(open.toArray()) + "]";
    }
}
