// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/// The worker half of the in-memory encoder-cache connector on one rank.
final class MemoryEcWorker implements EcWorkerConnector {
    private static final long CLOSE_SECONDS = 5;
    private static final int ENDED_REMEMBERED = 4096;

    private final int rank;
    private final String instance;
    private final String namespace;
    private final boolean produces;
    private final MemoryStore store;
    private final HostServices host;
    private final ExecutorService background;
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<TransferId, Completion.Result> results =
            new LinkedHashMap<>(); // guarded by lock
    private final Set<TransferId> running = new LinkedHashSet<>(); // guarded by lock
    private final Set<TransferId> revoked = new LinkedHashSet<>(); // guarded by lock
    private final Set<TransferId> ended = new LinkedHashSet<>();

    /// Store keys of the items that each hold still waits for.
    private final Map<TransferId, List<String>> holds = new LinkedHashMap<>();

    private final List<CacheEvent> events = new ArrayList<>(); // guarded by lock
    private Stats stats = Stats.EMPTY;
    private MemoryRange memory = new MemoryRange.Host(MemorySegment.NULL);
    private boolean closed;

    MemoryEcWorker(WorkerContext context) {
        rank = context.rank().rank();
        instance = context.instance();
        namespace = context.engine().namespace().hex();
        produces = context.config().role().produces();
        host = context.host();
        store = MemoryConnectorProvider.store(context.config(), context.options());
        background =
                new ThreadPoolExecutor(
                        1,
                        1,
                        0,
                        TimeUnit.SECONDS,
                        new ArrayBlockingQueue<>(4096),
                        Thread.ofPlatform()
                                .daemon()
                                .name(
                                        "kvferry-ecmemory-"
                                                + context.config().engineId()
                                                + "-"
                                                + rank)
                                .factory(),
                        new ThreadPoolExecutor.CallerRunsPolicy());
    }

    @Override
    public Optional<ProvidedMemory> provideMemory(long bytes) {
        return Optional.of(OwnCache.of(bytes));
    }

    @Override
    public void registerMemory(MemoryRange all) {
        memory = all;
    }

    @Override
    public Payload handshake() {
        return new WireWriter().i32(rank).toPayload(1);
    }

    @Override
    public void beginStep(WorkerStep step, EncoderCache cache) {
        step.revoked().forEach(this::revoke);
        var plan = MemoryEcPlan.decode(step.plan());
        plan.holds().stream()
                .filter(hold -> isNew(hold.id()))
                .forEach(hold -> holds.put(hold.id(), hold.keys()));
        plan.loads().stream().filter(load -> isNew(load.id())).forEach(load -> start(load, cache));
    }

    private boolean isNew(TransferId id) {
        return !ended.contains(id) && !locked(() -> results.containsKey(id));
    }

    private void start(MemoryEcPlan.Load load, EncoderCache cache) {
        locked(() -> running.add(load.id()));
        if (load.sync()) {
            load(load.id(), load.item(), cache);
        } else {
            background.execute(() -> load(load.id(), load.item(), cache));
        }
    }

    private void revoke(TransferId id) {
        holds.remove(id);
        boolean answered =
                locked(() -> {
                    if (running.contains(id)) {
                        return !revoked.add(id);
                    }
                    return !ended.contains(id)
                            && results.putIfAbsent(id, new Completion.Revoked()) == null;
                });
        if (answered) {
            host.wake();
        }
    }

    private void load(TransferId id, EcItem item, EncoderCache cache) {
        var result = isRevoked(id) ? new Completion.Revoked() : fill(item, cache);
        locked(() -> {
            running.remove(id);
            results.put(id, result);
            return true;
        });
        host.wake();
    }

    /// Fills and publishes the item; an item that the cache has already stays as it is.
    private Completion.Result fill(EcItem item, EncoderCache cache) {
        if (cache.get(item.hash()).isPresent()) {
            return new Completion.Completed(0);
        }
        try {
            var part = store.item(namespace, MemoryEcProvider.key(item));
            if (part.isEmpty()) {
                return failed(ErrorCode.MISS, "item " + item.hash() + " is gone");
            }
            long bytes = part.get().data().byteSize();
            if (!part.get().isSound(0, bytes)) {
                remove(item);
                return failed(ErrorCode.CORRUPT, "item " + item.hash() + " fails its checksum");
            }
            var output = cache.allocate(item);
            if (output.data().byteSize() != bytes) {
                cache.discard(item.hash());
                return failed(
                        ErrorCode.INCOMPATIBLE, "item " + item.hash() + " has " + bytes + " bytes");
            }
            checkPlace(output);
            output.data().copyFrom(part.get().data());
            cache.publish(item.hash());
            store.itemTaken(namespace, MemoryEcProvider.key(item));
            return new Completion.Completed(bytes);
        } catch (KvFerryException e) {
            return failed(e.code(), String.valueOf(e.getMessage()));
        }
    }

    /// What a connector that registered the memory with a network card relies on.
    private void checkPlace(EncoderOutput output) {
        if (!output.memory().equals(memory)) {
            throw new IllegalStateException(
                    "an item lies in " + output.memory() + ", registered was " + memory);
        }
    }

    private void remove(EcItem item) {
        if (store.removeItem(namespace, MemoryEcProvider.key(item))) {
            tell(new CacheEvent.ItemsRemoved(instance, Tier.HOST, List.of(item.hash())));
        }
    }

    private void tell(CacheEvent event) {
        locked(() -> events.add(event));
    }

    private static Completion.Result failed(ErrorCode code, String message) {
        return new Completion.Failed(new Failure(code, message), List.of());
    }

    private boolean isRevoked(TransferId id) {
        return locked(() -> revoked.remove(id));
    }

    @Override
    public void save(EcItem item, EncoderOutput output) {
        if (!produces) {
            return;
        }
        checkPlace(output);
        var copy =
                MemorySegment.ofArray(new byte[Math.toIntExact(output.data().byteSize())])
                        .copyFrom(output.data());
        var checksum = MemoryStore.Part.checksum(copy, 0, copy.byteSize());
        try {
            boolean isNew =
                    store.putItem(
                            namespace,
                            MemoryEcProvider.key(item),
                            new MemoryStore.Part(copy, new int[] {checksum}));
            if (isNew) {
                tell(new CacheEvent.ItemsStored(instance, Tier.HOST, List.of(item.hash())));
            }
            stats = stats.merge(Stats.counter("ec_memory_save_bytes", copy.byteSize()));
        } catch (KvFerryException e) {
            stats = stats.merge(Stats.counter("ec_memory_save_failures", 1));
        }
    }

    @Override
    public void endStep(WorkerStep step) {
        // Saves are complete when save() returns.
    }

    @Override
    public StepReport report(WorkerStep step) {
        endHolds();
        var told = new ArrayList<CacheEvent>();
        var done =
                locked(() -> {
                    var all = Map.copyOf(results);
                    results.clear();
                    told.addAll(events);
                    events.clear();
                    return all;
                });
        var completions =
                done.entrySet().stream()
                        .map(entry -> new Completion(entry.getKey(), rank, entry.getValue()))
                        .toList();
        ended.addAll(done.keySet());
        while (ended.size() > ENDED_REMEMBERED) {
            ended.remove(ended.iterator().next());
        }
        var report = new StepReport(rank, step.number(), completions, Payload.EMPTY, stats, told);
        stats = Stats.EMPTY;
        return report;
    }

    /// Holds end when the last of their items has been loaded somewhere.
    private void endHolds() {
        for (var hold : List.copyOf(holds.entrySet())) {
            if (hold.getValue().stream().allMatch(key -> store.wasTaken(namespace, key))) {
                holds.remove(hold.getKey());
                locked(() -> results.put(hold.getKey(), new Completion.Completed(0)) == null);
                host.wake();
            }
        }
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        locked(() -> revoked.addAll(running));
        background.shutdown();
        if (!MemoryWorker.hasEnded(background, CLOSE_SECONDS)) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT, "encoder loads did not stop in " + CLOSE_SECONDS + " s");
        }
        closed = true;
        store.close();
    }

    private <T> T locked(Supplier<T> action) {
        lock.lock();
        try {
            return action.get();
        } finally {
            lock.unlock();
        }
    }
}
