// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/// Who prefills: the table behind the bootstrap service.
///
/// A registration that contradicts a live one is refused, as in vLLM. One that contradicts a worker
/// that is gone replaces it, as vLLM does not: that is a restart. Who is gone, the caller finds out
/// ([Occupied]).
///
/// Threading: any thread.
final class BootstrapRegistry {
    /// No cluster comes near it; bounds what a hostile peer can make the table grow to.
    private static final int MAX_WORKERS = 65_536;

    private final ReentrantLock lock = new ReentrantLock();
    private final Map<Integer, Engine> byDpRank = new TreeMap<>();
    private final LongSupplier nanoTime;
    private int workers;
    private long version;

    BootstrapRegistry(LongSupplier nanoTime) {
        this.nanoTime = nanoTime;
    }

    /// What became of a registration.
    sealed interface Offer {}

    /// It counts from now on.
    record Accepted() implements Offer {}

    /// Somebody else has the place.
    ///
    /// @param holders addresses that must all be dead for the newcomer to replace them
    /// @param version names this state for [#replace]
    record Occupied(String reason, List<String> holders, long version) implements Offer {}

    private record Worker(String addr, long expires) {}

    private static final class Engine {
        private final String engineId;
        private String incarnation = "";
        private int tpSize;
        private int ppSize;
        private boolean grants;
        private final Map<EngineEntry.Rank, Worker> workers = new HashMap<>();

        Engine(String engineId) {
            this.engineId = engineId;
        }

        void describe(WorkerRegistration.Extra extra) {
            incarnation = extra.incarnation();
            tpSize = extra.tpSize();
            ppSize = extra.ppSize();
            grants = extra.grants();
        }
    }

    Offer offer(WorkerRegistration registration) {
        lock.lock();
        try {
            expire();
            return place(registration);
        } finally {
            lock.unlock();
        }
    }

    /// Puts the registration in place of workers that were found dead, unless the table has changed
    /// since.
    Offer replace(WorkerRegistration registration, Occupied occupied) {
        lock.lock();
        try {
            expire();
            if (occupied.version() == version) {
                evict(registration, occupied.holders());
            }
            return place(registration);
        } finally {
            lock.unlock();
        }
    }

    /// The table as of now.
    Map<Integer, EngineEntry> entries() {
        lock.lock();
        try {
            expire();
            var copy = new TreeMap<Integer, EngineEntry>();
            byDpRank.forEach((dpRank, engine) -> {
                var addresses = new HashMap<EngineEntry.Rank, String>();
                engine.workers.forEach((rank, worker) -> addresses.put(rank, worker.addr()));
                copy.put(
                        dpRank,
                        new EngineEntry(
                                engine.engineId,
                                engine.tpSize > 0,
                                engine.incarnation,
                                engine.tpSize,
                                engine.ppSize,
                                engine.grants,
                                addresses));
            });
            return copy;
        } finally {
            lock.unlock();
        }
    }

    private Offer place(WorkerRegistration registration) {
        var engine = byDpRank.get(registration.dpRank());
        if (engine != null) {
            var clash = clash(engine, registration);
            if (clash.isPresent()) {
                return clash.get();
            }
        } else {
            engine = new Engine(registration.engineId());
        }
        var rank = new EngineEntry.Rank(registration.tpRank(), registration.ppRank());
        if (!engine.workers.containsKey(rank)) {
            if (workers >= MAX_WORKERS) {
                return new Occupied(
                        "the bootstrap service is full (" + MAX_WORKERS + " workers)",
                        List.of(),
                        version);
            }
            workers++;
            version++;
        }
        registration.extra().ifPresent(engine::describe);
        long expires =
                registration
                        .extra()
                        .map(extra -> nanoTime.getAsLong() + extra.lease().toNanos())
                        .orElse(Long.MAX_VALUE);
        engine.workers.put(rank, new Worker(registration.addr(), expires));
        byDpRank.put(registration.dpRank(), engine);
        return new Accepted();
    }

    private Optional<Occupied> clash(Engine engine, WorkerRegistration registration) {
        var incarnation =
                registration.extra().map(WorkerRegistration.Extra::incarnation).orElse("");
        boolean restarted =
                !engine.incarnation.isEmpty()
                        && !incarnation.isEmpty()
                        && !engine.incarnation.equals(incarnation);
        if (!engine.engineId.equals(registration.engineId()) || restarted) {
            return Optional.of(
                    new Occupied(
                            "dp_rank "
                                    + registration.dpRank()
                                    + " is already registered with engine_id "
                                    + engine.engineId
                                    + (restarted ? " of another start" : ""),
                            engine.workers.values().stream().map(Worker::addr).toList(),
                            version));
        }
        var present =
                engine.workers.get(
                        new EngineEntry.Rank(registration.tpRank(), registration.ppRank()));
        if (present == null || present.addr().equals(registration.addr())) {
            return Optional.empty();
        }
        return Optional.of(
                new Occupied(
                        "dp_rank "
                                + registration.dpRank()
                                + ", tp_rank "
                                + registration.tpRank()
                                + ", pp_rank "
                                + registration.ppRank()
                                + " is already registered at "
                                + present.addr(),
                        List.of(present.addr()),
                        version));
    }

    private void evict(WorkerRegistration registration, List<String> dead) {
        var engine = byDpRank.get(registration.dpRank());
        if (engine == null) {
            return;
        }
        int before = engine.workers.size();
        engine.workers.values().removeIf(worker -> dead.contains(worker.addr()));
        workers -= before - engine.workers.size();
        version++;
        if (engine.workers.isEmpty()) {
            byDpRank.remove(registration.dpRank());
        }
    }

    private void expire() {
        long now = nanoTime.getAsLong();
        byDpRank.values()
                .removeIf(engine -> {
                    int before = engine.workers.size();
                    engine.workers
                            .values()
                            .removeIf(worker ->
                                    worker.expires() != Long.MAX_VALUE
                                            && worker.expires() - now <= 0);
                    int gone = before - engine.workers.size();
                    workers -= gone;
                    version += gone;
                    return engine.workers.isEmpty();
                });
    }
}
