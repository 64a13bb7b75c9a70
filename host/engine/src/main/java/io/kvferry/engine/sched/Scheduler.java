// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.block.CachePool;
import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.engine.sched.RequestState.Load;
import io.kvferry.engine.sched.RequestState.Status;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.TransferId;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/// Decides what each step computes: running requests first, then requests whose load is done, then
/// waiting ones.
final class Scheduler {
    private final Limits limits;
    private final int blockTokens;
    private final int groups;
    private final CachePool pool;
    private final KvSide kv;
    private final Desk desk;
    private final Encoders encoders;
    private final Observer observer;
    private final LocalPrefixes prefixes;
    private final StepSchedule schedule = new StepSchedule();
    private final Queues queues;

    /// Ids the runners have to forget.
    private final List<String> forgotten = new ArrayList<>();

    private final List<TransferId> newLoads = new ArrayList<>();
    private final List<RequestState> encoded = new ArrayList<>();

    /// Requests that have to queue again; not while the queue is walked.
    private final List<RequestState> refused = new ArrayList<>();

    private int budget;
    private int pending;

    Scheduler(
            Limits limits,
            int blockTokens,
            int groups,
            Queues queues,
            CachePool pool,
            KvSide kv,
            Desk desk,
            Encoders encoders,
            Observer observer) {
        this.limits = limits;
        this.blockTokens = blockTokens;
        this.groups = groups;
        this.queues = queues;
        this.pool = pool;
        this.prefixes =
                new LocalPrefixes(limits.prefixCache(), blockTokens, groups, pool, observer);
        this.kv = kv;
        this.desk = desk;
        this.encoders = encoders;
        this.observer = observer;
    }

    private enum Admission {
        DONE,
        /// Not now; the next one may go.
        SKIP,
        /// No room; nobody behind it goes either, or it would starve.
        STOP
    }

    void enqueue(RequestState request) {
        queues.waiting.addLast(request);
    }

    StepSchedule schedule() {
        return schedule;
    }

    /// Plans a step.
    void plan(long step, long now) {
        schedule.begin(step);
        encoders.beginStep();
        newLoads.clear();
        encoded.clear();
        budget = limits.stepTokens();
        pending = 0;
        if (planRunning(now)) {
            if (admitReady(now)) {
                admitWaiting(now);
            }
            requeueRefused();
        }
    }

    /// @return whether nothing was preempted
    private boolean planRunning(long now) {
        for (int i = 0; i < queues.running.size() && budget > 0; i++) {
            var request = queues.running.get(i);
            int from = request.computed;
            int to =
                    encoders.reach(
                            request, from, Math.min(request.tokenCount(), from + budget), now);
            if (to <= from) {
                continue;
            }
            while (!request.blocks.grow(pool, blocksFor(to))) {
                var victim = queues.running.getLast();
                preempt(victim);
                if (victim == request) {
                    return false;
                }
            }
            take(request, from, to - from);
        }
        return schedule.preempted.isEmpty();
    }

    private void take(RequestState request, int from, int count) {
        schedule.add(request, from, count, request.admitted);
        request.admitted = false;
        budget -= count;
    }

    private int blocksFor(int tokens) {
        return (tokens + blockTokens - 1) / blockTokens;
    }

    private void preempt(RequestState victim) {
        queues.running.remove(victim);
        observer.metrics.count(Counter.PREEMPTIONS);
        victim.preemptions++;
        victim.blocks.release(pool);
        restart(victim);
        schedule.preempted.add(victim.id);
    }

    /// Back to the head of the queue, without blocks.
    private void restart(RequestState request) {
        encoders.stopped(request);
        request.computed = 0;
        request.published = 0;
        request.runnerKnows = 0;
        request.attempt++;
        request.load = null;
        request.admitted = false;
        request.pendingSince = 0;
        request.retryAt = 0;
        request.blockedAt = -1;
        request.status = request.preemptions > 0 ? Status.PREEMPTED : Status.WAITING;
        forgotten.add(request.id);
        queues.waiting.addFirst(request);
    }

    /// @return false when one of them lacks blocks: waiting requests, which would take what it
    ///   waits for, have to wait as well
    private boolean admitReady(long now) {
        while (!queues.ready.isEmpty()
                && queues.running.size() < limits.maxRunning()
                && budget > 0) {
            var request = queues.ready.getFirst();
            int from = request.computed;
            int to =
                    encoders.reach(
                            request, from, Math.min(request.tokenCount(), from + budget), now);
            if (!request.blocks.grow(pool, blocksFor(Math.max(to, from)))) {
                if (queues.running.isEmpty() && queues.ready.size() > 1) {
                    var victim =
                            queues.ready.removeLast(); // or two loaded requests would wait for each
                    // other for ever
                    victim.preemptions++;
                    observer.metrics.count(Counter.PREEMPTIONS);
                    victim.blocks.release(pool);
                    restart(victim);
                    schedule.preempted.add(victim.id);
                    continue;
                }
                encoders.stopped(request);
                return false;
            }
            queues.ready.removeFirst();
            kv.onAllocated(request, LoadAssignment.none(loadId(request)));
            run(request);
            if (to > from) {
                take(request, from, to - from);
            }
        }
        return true;
    }

    private void run(RequestState request) {
        request.status = Status.RUNNING;
        request.admitted = true;
        queues.running.add(request);
    }

    private void admitWaiting(long now) {
        Iterator<RequestState> queue = queues.waiting.iterator();
        while (queue.hasNext()
                && queues.running.size() < limits.maxRunning()
                && budget > 0
                && pending < limits.maxRunning()) {
            var request = queue.next();
            switch (limits.encodeOnly() ? encodeOnly(request, now) : admit(request, now)) {
                case DONE -> queue.remove();
                case SKIP -> pending++;
                case STOP -> {
                    return;
                }
            }
        }
    }

    private Admission encodeOnly(RequestState request, long now) {
        return switch (encoders.gather(request, now)) {
            case NO_ROOM -> Admission.STOP;
            case UNDER_WAY -> Admission.SKIP;
            case ALL_THERE -> {
                encoded.add(request);
                run(request);
                yield Admission.DONE;
            }
        };
    }

    private Admission admit(RequestState request, long now) {
        if (request.retryAt != 0 && now - request.retryAt < 0) {
            return Admission.SKIP;
        }
        if (request.blockedAt == pool.version()) {
            return Admission.STOP;
        }
        int cached = prefixes.find(request);
        int local = cached * blockTokens;
        var answer = kv.lookup(request, local);
        if (answer instanceof LookupResult.Pending(var retryAfter)
                && stillPending(request, retryAfter, now)) {
            return Admission.SKIP;
        }
        request.pendingSince = 0;
        request.retryAt = 0;
        prefixes.hold(request, cached);
        var admission =
                answer instanceof LookupResult.Hit hit
                        ? admitHit(request, local, hit, now)
                        : admitMiss(request, local, "", now);
        if (admission != Admission.DONE) {
            encoders.stopped(request);
            request.blocks.release(pool);
            request.blockedAt = admission == Admission.STOP ? pool.version() : -1;
        }
        return admission;
    }

    private boolean stillPending(RequestState request, Duration retryAfter, long now) {
        if (request.pendingSince == 0) {
            request.pendingSince = now | 1;
        }
        long left = request.pendingSince + limits.pendingLookup().toNanos() - now;
        if (left <= 0) {
            observer.metrics.count(Counter.LOOKUPS_PENDING_TIMEOUT);
            observer.incident(
                    request.id, "lookup-timeout", kv.instance(), "still pending; taken as a miss");
            return false;
        }
        request.retryAt = now + Limits.nanos(retryAfter, left) | 1;
        return true;
    }

    private Admission admitHit(RequestState request, int local, LookupResult.Hit hit, long now) {
        var offer = Offer.of(hit, request, blockTokens);
        if (offer.tokens() == 0) {
            return admitMiss(request, local, offer.reason(), now);
        }
        return hit.mode() == LoadMode.ASYNC
                ? startLoad(request, local, offer)
                : admitNow(request, local, offer, now);
    }

    private Admission startLoad(RequestState request, int local, Offer offer) {
        int to = local + offer.tokens();
        // A waiting load holds its blocks and cannot be preempted: leave what running prefills
        // still need.
        long needed = (long) (blocksFor(to) - request.blocks.count()) * groups;
        if (needed > pool.free() - (long) queues.promisedBlocks(blockTokens) * groups
                || !request.blocks.grow(pool, blocksFor(to))) {
            return Admission.STOP;
        }
        observer.decision(request, kv.instance(), offer.shares(), local, offer.reason());
        request.localTokens = local;
        request.computed = local;
        request.published = local / blockTokens;
        request.load = new Load(local, to, offer.shares(), false);
        var id = loadId(request);
        desk.load(id, request);
        if (!kv.onAllocated(request, new LoadAssignment(id, local, to, LoadMode.ASYNC))) {
            refuse(request, id);
            return Admission.DONE;
        }
        request.status = Status.LOADING;
        newLoads.add(id);
        queues.loading.add(request);
        return Admission.DONE;
    }

    private Admission admitMiss(RequestState request, int local, String reason, long now) {
        return admitNow(request, local, Offer.nothing(reason), now);
    }

    private Admission admitNow(RequestState request, int local, Offer offer, long now) {
        int from = local + offer.tokens();
        int to = encoders.reach(request, from, Math.min(request.tokenCount(), from + budget), now);
        if (to <= from) {
            return Admission.SKIP;
        }
        if (!request.blocks.grow(pool, blocksFor(to))) {
            return Admission.STOP;
        }
        if (kv.present()) {
            observer.decision(request, kv.instance(), offer.shares(), local, offer.reason());
        } else {
            observer.metrics.add(Counter.LOCAL_HIT_TOKENS, local);
        }
        request.localTokens = local;
        request.external = List.of();
        request.computed = local;
        request.published = local / blockTokens;
        var id = loadId(request);
        if (from == local) {
            kv.onAllocated(request, LoadAssignment.none(id));
        } else {
            request.load = new Load(local, from, offer.shares(), true);
            desk.load(id, request);
            if (!kv.onAllocated(request, new LoadAssignment(id, local, from, LoadMode.SYNC))) {
                refuse(request, id);
                return Admission.DONE;
            }
            newLoads.add(id);
        }
        run(request);
        take(request, from, to - from);
        return Admission.DONE;
    }

    /// The connector failed to take a load over: nobody knows whether it will write, so the blocks
    /// stay out of use until the workers have answered, and the request starts over without it.
    private void refuse(RequestState request, TransferId id) {
        var load = request.load;
        if (load != null) {
            request.breakPromise(load.shares, load.from, load.from);
        }
        desk.refuse(id, request.blocks);
        request.status = Status.WAITING;
        refused.add(request);
    }

    private void requeueRefused() {
        for (int i = refused.size() - 1; i >= 0; i--) {
            restart(refused.get(i));
        }
        refused.clear();
    }

    static TransferId loadId(RequestState request) {
        return TransferId.load(request.id, request.attempt);
    }

    /// Offers the request's computed full blocks to the prefix cache.
    void publish(RequestState request) {
        prefixes.publish(request);
    }

    /// A load is done and the request can run.
    void loaded(RequestState request) {
        if (request.status == Status.RUNNING) {
            return; // a synchronous load, in its own step
        }
        queues.loading.remove(request);
        request.status = request.preemptions > 0 ? Status.PREEMPTED : Status.WAITING;
        queues.ready.addLast(request);
    }

    /// A load failed as a whole: start over, perhaps from another source.
    void restartAfterLoad(RequestState request) {
        queues.running.remove(request);
        queues.loading.remove(request);
        request.blocks.release(pool);
        restart(request);
    }

    /// A synchronous load was not reported with its step: wait for it like for an asynchronous one.
    void park(RequestState request) {
        encoders.stopped(request);
        queues.running.remove(request);
        request.status = Status.LOADING;
        queues.loading.add(request);
    }

    /// An item of an encode engine's request did not come after all: queue again.
    void encodeAgain(RequestState request) {
        queues.running.remove(request);
        request.status = Status.WAITING;
        queues.waiting.addFirst(request);
    }

    void forget(String requestId) {
        forgotten.add(requestId);
    }

    /// Ids that the runners have to forget; cleared by the caller once told.
    List<String> forgotten() {
        return forgotten;
    }

    /// Loads whose first plan is the one of this step.
    List<TransferId> newLoads() {
        return newLoads;
    }

    /// Requests of an encode engine that are done with this step.
    List<RequestState> encoded() {
        return encoded;
    }
}
