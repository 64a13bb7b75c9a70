// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferResult;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.lang.foreign.MemorySegment;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
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
    private final String namespace;
    private final boolean produces;
    private final MemoryStore store;
    private final ExecutorService background;
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<TransferId, TransferResult> results =
            new LinkedHashMap<>(); // guarded by lock
    private final Set<TransferId> running = new LinkedHashSet<>(); // guarded by lock
    private final Set<TransferId> revoked = new LinkedHashSet<>(); // guarded by lock
    private final Set<TransferId> ended = new LinkedHashSet<>();
    private Stats stats = Stats.EMPTY;
    private boolean closed;

    MemoryEcWorker(WorkerContext context) {
        rank = context.rank().rank();
        namespace = context.namespace().hex();
        produces = context.config().role().produces();
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
    public void beginStep(WorkerStep step, EncoderCache cache) {
        step.revoked().forEach(this::revoke);
        if (step.plan().isEmpty()) {
            return;
        }
        if (step.plan().version() != MemoryEcScheduler.PLAN_VERSION) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE, "encoder plan version " + step.plan().version());
        }
        var in = step.plan().reader();
        for (int n = in.count(30); n > 0; n--) {
            var id = TransferId.read(in);
            boolean sync = in.bool();
            var item = EcItem.read(in);
            if (!ended.contains(id) && !locked(() -> results.containsKey(id))) {
                start(id, item, sync, cache);
            }
        }
        in.end();
    }

    private void start(TransferId id, EcItem item, boolean sync, EncoderCache cache) {
        locked(() -> running.add(id));
        if (sync) {
            load(id, item, cache);
        } else {
            background.execute(() -> load(id, item, cache));
        }
    }

    private void revoke(TransferId id) {
        locked(() -> {
            if (running.contains(id)) {
                revoked.add(id);
            } else if (!results.containsKey(id) && !ended.contains(id)) {
                results.put(id, new TransferResult.Revoked());
            }
            return true;
        });
    }

    private void load(TransferId id, EcItem item, EncoderCache cache) {
        var result = isRevoked(id) ? new TransferResult.Revoked() : fill(item, cache);
        locked(() -> {
            running.remove(id);
            results.put(id, result);
            return true;
        });
    }

    /// Fills and publishes the item; an item that the cache has already stays as it is.
    private TransferResult fill(EcItem item, EncoderCache cache) {
        if (cache.get(item.hash()).isPresent()) {
            return new TransferResult.Completed(0);
        }
        try {
            var part = store.item(namespace, MemoryEcProvider.key(item));
            if (part.isEmpty()) {
                return failed(ErrorCode.MISS, "item " + item.hash() + " is gone");
            }
            long bytes = part.get().data().byteSize();
            if (!part.get().isSound(0, bytes)) {
                store.removeItem(namespace, MemoryEcProvider.key(item));
                return failed(ErrorCode.CORRUPT, "item " + item.hash() + " fails its checksum");
            }
            var output = cache.allocate(item);
            if (output.data().byteSize() != bytes) {
                cache.discard(item.hash());
                return failed(
                        ErrorCode.INCOMPATIBLE, "item " + item.hash() + " has " + bytes + " bytes");
            }
            output.data().copyFrom(part.get().data());
            cache.publish(item.hash());
            return new TransferResult.Completed(bytes);
        } catch (KvFerryException e) {
            return failed(e.code(), String.valueOf(e.getMessage()));
        }
    }

    private static TransferResult failed(ErrorCode code, String message) {
        return new TransferResult.Failed(new Failure(code, message), List.of());
    }

    private boolean isRevoked(TransferId id) {
        return locked(() -> revoked.remove(id));
    }

    @Override
    public void save(EcItem item, EncoderOutput output) {
        if (!produces) {
            return;
        }
        var copy =
                MemorySegment.ofArray(new byte[Math.toIntExact(output.data().byteSize())])
                        .copyFrom(output.data());
        var checksum = MemoryStore.Part.checksum(copy, 0, copy.byteSize());
        try {
            store.putItem(
                    namespace,
                    MemoryEcProvider.key(item),
                    new MemoryStore.Part(copy, new int[] {checksum}));
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
        var done =
                locked(() -> {
                    var all = Map.copyOf(results);
                    results.clear();
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
        var report =
                new StepReport(rank, step.number(), completions, Payload.EMPTY, stats, List.of());
        stats = Stats.EMPTY;
        return report;
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        locked(() -> revoked.addAll(running));
        background.shutdown();
        try {
            if (!background.awaitTermination(CLOSE_SECONDS, TimeUnit.SECONDS)) {
                throw new KvFerryException(
                        ErrorCode.TIMEOUT, "encoder loads did not stop in " + CLOSE_SECONDS + " s");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            background.shutdownNow();
        } finally {
            store.close();
        }
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
