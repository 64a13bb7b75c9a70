// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/// The table of prefillers behind the bootstrap service.
///
/// A registration that conflicts with a live worker is refused, as in vLLM. One that conflicts with
/// a dead worker replaces it, unlike in vLLM, since that is a restart. The caller determines which
/// workers are dead ([Occupied]).
///
/// Each worker of an engine has its own address. Workers that announce nothing about their engine,
/// as vLLM's, are accepted if they are consistent: those of an engine come from one host, and a
/// rank counts only with all ranks before it.
///
/// Threading: any thread.
final class BootstrapRegistry {
    /// No cluster comes near it; bounds what a hostile peer can make the table grow to.
    private static final int MAX_WORKERS = 16_384;

    /// Workers that one host may register; it runs a rank per device.
    static final int MAX_WORKERS_PER_HOST = 1024;

    static final int MAX_ENGINES_PER_HOST = 128;

    private final ReentrantLock lock = new ReentrantLock();
    private final Map<Integer, Engine> byDpRank = new TreeMap<>();
    private final LongSupplier nanoTime;
    private final Optional<ReservedEngine> own;
    private int workers;
    private long version;

    BootstrapRegistry(LongSupplier nanoTime) {
        this(nanoTime, Optional.empty());
    }

    BootstrapRegistry(LongSupplier nanoTime, Optional<ReservedEngine> own) {
        this.nanoTime = nanoTime;
        this.own = own;
    }

    /// The result of a registration.
    sealed interface Offer {}

    /// It counts from now on.
    record Accepted() implements Offer {}

    /// Another worker holds the place.
    ///
    /// @param holders addresses that must all be dead for the newcomer to replace them
    /// @param version names this state for [#replace]
    record Occupied(String reason, List<String> holders, long version) implements Offer {}

    /// @param canonical form of its address
    private record Worker(String addr, String canonical, long expires, String from) {}

    /// A worker that expires only when it is found dead.
    record Leaseless(int dpRank, EngineEntry.Rank rank, String addr) {}

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

        boolean isDescribedBy(WorkerRegistration.Extra extra) {
            return incarnation.equals(extra.incarnation())
                    && tpSize == extra.tpSize()
                    && ppSize == extra.ppSize()
                    && grants == extra.grants();
        }

        void describe(WorkerRegistration.Extra extra) {
            incarnation = extra.incarnation();
            tpSize = extra.tpSize();
            ppSize = extra.ppSize();
            grants = extra.grants();
        }
    }

    /// @param from the host that it comes from
    Offer offer(WorkerRegistration registration, String from) {
        lock.lock();
        try {
            expire();
            return place(registration, from);
        } finally {
            lock.unlock();
        }
    }

    /// Puts the registration in place of workers that were found dead, unless the table has changed
    /// since.
    Offer replace(WorkerRegistration registration, String from, Occupied occupied) {
        lock.lock();
        try {
            expire();
            if (occupied.version() == version) {
                evict(registration, occupied.holders());
            }
            return place(registration, from);
        } finally {
            lock.unlock();
        }
    }

    /// Differs whenever the table does.
    long version() {
        lock.lock();
        try {
            expire();
            return version;
        } finally {
            lock.unlock();
        }
    }

    /// Workers that never renew: vLLM's.
    List<Leaseless> leaseless() {
        lock.lock();
        try {
            var found = new ArrayList<Leaseless>();
            byDpRank.forEach((dpRank, engine) ->
                    engine.workers.forEach((rank, worker) -> {
                        if (worker.expires() == Long.MAX_VALUE) {
                            found.add(new Leaseless(dpRank, rank, worker.addr()));
                        }
                    }));
            return found;
        } finally {
            lock.unlock();
        }
    }

    /// Takes a worker out that was found dead, unless another one has its place by now.
    void remove(Leaseless dead) {
        lock.lock();
        try {
            var engine = byDpRank.get(dead.dpRank());
            var worker = engine == null ? null : engine.workers.get(dead.rank());
            if (engine != null && worker != null && worker.addr().equals(dead.addr())) {
                engine.workers.remove(dead.rank());
                workers--;
                version++;
                if (engine.workers.isEmpty()) {
                    byDpRank.remove(dead.dpRank());
                }
            }
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
                                engine.tpSize > 0 ? addresses : withoutGaps(addresses)));
            });
            return copy;
        } finally {
            lock.unlock();
        }
    }

    /// Drops ranks after a missing one: anyone could register such a rank and keep the engine
    /// incomplete for ever. While an engine starts its list is incomplete anyway; a decoder
    /// compares it with a later one.
    private static Map<EngineEntry.Rank, String> withoutGaps(Map<EngineEntry.Rank, String> all) {
        int tpSize = 0;
        while (all.containsKey(new EngineEntry.Rank(tpSize, 0))) {
            tpSize++;
        }
        int ppSize = 0;
        while (all.containsKey(new EngineEntry.Rank(0, ppSize))) {
            ppSize++;
        }
        var counted = new HashMap<EngineEntry.Rank, String>();
        for (var worker : all.entrySet()) {
            if (worker.getKey().tp() < tpSize && worker.getKey().pp() < ppSize) {
                counted.put(worker.getKey(), worker.getValue());
            }
        }
        return counted;
    }

    private Offer place(WorkerRegistration registration, String from) {
        var canonical = WorkerAddress.canonical(registration.addr());
        if (own.isPresent() && usurps(registration, own.get())) {
            return new Occupied(
                    "dp_rank "
                            + own.get().dpRank()
                            + " and engine_id "
                            + own.get().engineId()
                            + " are those of the engine that runs this service",
                    List.of(),
                    version);
        }
        var engine = byDpRank.get(registration.dpRank());
        if (engine != null) {
            var clash = clash(engine, registration, canonical, from);
            if (clash.isPresent()) {
                return clash.get();
            }
        } else {
            engine = new Engine(registration.engineId());
        }
        var rank = new EngineEntry.Rank(registration.tpRank(), registration.ppRank());
        if (!engine.workers.containsKey(rank)) {
            var crowd = crowd(registration.dpRank(), from);
            if (crowd.isPresent()) {
                return crowd.get();
            }
            if (workers >= MAX_WORKERS) {
                return new Occupied(
                        "the bootstrap service is full (" + MAX_WORKERS + " workers)",
                        List.of(),
                        version);
            }
            workers++;
            version++;
        }
        if (registration.extra().isPresent() && !engine.isDescribedBy(registration.extra().get())) {
            engine.describe(registration.extra().get());
            version++;
        }
        long expires =
                registration
                        .extra()
                        .map(extra -> nanoTime.getAsLong() + extra.lease().toNanos())
                        .orElse(Long.MAX_VALUE);
        var present = engine.workers.get(rank);
        if (present != null && present.expires() - expires > 0) {
            expires = present.expires(); // anyone may renew a lease, but not shorten it
        }
        engine.workers.put(rank, new Worker(registration.addr(), canonical, expires, from));
        byDpRank.put(registration.dpRank(), engine);
        return new Accepted();
    }

    private static boolean usurps(WorkerRegistration registration, ReservedEngine own) {
        boolean concerns =
                registration.dpRank() == own.dpRank()
                        || registration.engineId().equals(own.engineId());
        boolean isOwn =
                registration.dpRank() == own.dpRank()
                        && registration.engineId().equals(own.engineId())
                        && registration
                                .extra()
                                .filter(extra -> extra.incarnation().equals(own.incarnation()))
                                .isPresent();
        return concerns && !isOwn;
    }

    /// Whether one host has registered so much that it crowds others out.
    private Optional<Occupied> crowd(int dpRank, String from) {
        int engines = 0;
        int theirs = 0;
        for (var engine : byDpRank.values()) {
            int before = theirs;
            for (var worker : engine.workers.values()) {
                theirs += worker.from().equals(from) ? 1 : 0;
            }
            engines += theirs > before ? 1 : 0;
        }
        boolean crowded =
                theirs >= MAX_WORKERS_PER_HOST
                        || (engines >= MAX_ENGINES_PER_HOST && !byDpRank.containsKey(dpRank));
        return crowded
                ? Optional.of(
                        new Occupied(
                                from + " has registered " + theirs + " workers already",
                                List.of(),
                                version))
                : Optional.empty();
    }

    /// Why a worker does not fit its engine: it has another size or kind, or is not part of it.
    /// Empty if it fits. Accepting it would make the engine incomplete for all decoders, or have
    /// them send it requests that it does not understand.
    private Optional<Occupied> misfit(Engine engine, WorkerRegistration registration, String from) {
        if (!engine.engineId.equals(registration.engineId())) {
            return Optional.empty();
        }
        if (engine.tpSize == 0) {
            return registration.extra().isEmpty()
                    ? stranger(engine, registration, from)
                    : Optional.of(
                            new Occupied(
                                    "engine "
                                            + engine.engineId
                                            + " has workers that are none of kvferry's",
                                    engine.workers.values().stream().map(Worker::addr).toList(),
                                    version));
        }
        boolean fits =
                registration
                        .extra()
                        .map(extra ->
                                !extra.incarnation().equals(engine.incarnation)
                                        || engine.isDescribedBy(extra))
                        .orElse(false);
        return fits
                ? Optional.empty()
                : Optional.of(
                        new Occupied(
                                "engine "
                                        + engine.engineId
                                        + " has tp size "
                                        + engine.tpSize
                                        + " and pp size "
                                        + engine.ppSize
                                        + ", of kvferry workers of one kind only",
                                List.of(),
                                version));
    }

    /// A worker without a size that would join an engine of another host.
    private Optional<Occupied> stranger(
            Engine engine, WorkerRegistration registration, String from) {
        for (var other : engine.workers.values()) {
            if (!other.from().equals(from)) {
                return Optional.of(
                        new Occupied(
                                "engine "
                                        + engine.engineId
                                        + " has workers that registered from another host",
                                engine.workers.values().stream().map(Worker::addr).toList(),
                                version));
            }
        }
        return Optional.empty();
    }

    private Optional<Occupied> clash(
            Engine engine, WorkerRegistration registration, String canonical, String from) {
        var misfit = misfit(engine, registration, from);
        if (misfit.isPresent()) {
            return misfit;
        }
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
        var rank = new EngineEntry.Rank(registration.tpRank(), registration.ppRank());
        for (var other : engine.workers.entrySet()) {
            if (!other.getKey().equals(rank) && other.getValue().canonical().equals(canonical)) {
                return Optional.of(
                        new Occupied(
                                registration.addr()
                                        + " is that of another rank of the engine, listed at "
                                        + other.getValue().addr(),
                                List.of(),
                                version));
            }
        }
        var present = engine.workers.get(rank);
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
