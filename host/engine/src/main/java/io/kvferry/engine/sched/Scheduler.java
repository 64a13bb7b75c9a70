// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.block.CachePool;
import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.engine.sched.RequestLifecycle.Change;
import io.kvferry.engine.sched.RequestLifecycle.Status;
import io.kvferry.engine.sched.RequestState.Load;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.TransferId;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// Decides what each step computes: running requests first, then requests whose load is done, then
/// waiting ones.
final class Scheduler {
    /// A blocked request is looked up again after this time, even if no more blocks are free.
    private static final long BLOCKED_RETRY_NANOS = 10_000_000;

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
    private final RequestLifecycle lifecycle;

    /// Ids the runners have to forget.
    private final List<String> forgotten = new ArrayList<>();

    private final List<TransferId> newLoads = new ArrayList<>();
    private final List<RequestState> encoded = new ArrayList<>();

    private int budget;
    private int pending;

    Scheduler(
            Limits limits,
            int blockTokens,
            int groups,
            RequestLifecycle lifecycle,
            CachePool pool,
            KvSide kv,
            Desk desk,
            Encoders encoders,
            Observer observer) {
        this.limits = limits;
        this.blockTokens = blockTokens;
        this.groups = groups;
        this.lifecycle = lifecycle;
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
        lifecycle.change(request, Change.ENTER);
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
        }
    }

    /// @return whether nothing was preempted
    private boolean planRunning(long now) {
        for (int i = 0; i < lifecycle.running().size() && budget > 0; i++) {
            var request = lifecycle.running().get(i);
            int from = request.computed;
            int to =
                    encoders.reach(
                            request, from, Math.min(request.tokenCount(), from + budget), now);
            if (to <= from) {
                continue;
            }
            while (!request.blocks.grow(pool, blocksFor(to))) {
                var victim = lifecycle.running().getLast();
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
        forgotten.add(request.id);
        lifecycle.change(request, Change.RESTART);
    }

    /// @return false when one of them lacks blocks: waiting requests, which would take what it
    ///   waits for, have to wait as well
    private boolean admitReady(long now) {
        while (lifecycle.running().size() < limits.maxRunning() && budget > 0) {
            var request = lifecycle.firstReady();
            if (request == null) {
                return true;
            }
            int from = request.computed;
            int to =
                    encoders.reach(
                            request, from, Math.min(request.tokenCount(), from + budget), now);
            if (!request.blocks.grow(pool, blocksFor(Math.max(to, from)))) {
                var victim = lifecycle.lastReady();
                if (lifecycle.running().isEmpty() && victim != null && victim != request) {
                    preempt(victim); // or two loaded requests would wait for each other for ever
                    continue;
                }
                encoders.stopped(request);
                return false;
            }
            kv.onAllocated(request, LoadAssignment.none(loadId(request)));
            run(request);
            if (to > from) {
                take(request, from, to - from);
            }
        }
        return true;
    }

    private void run(RequestState request) {
        lifecycle.change(request, Change.RUN);
        request.admitted = true;
    }

    private void admitWaiting(long now) {
        var request = lifecycle.firstWaiting();
        while (request != null
                && lifecycle.running().size() < limits.maxRunning()
                && budget > 0
                && pending < limits.maxRunning()) {
            var next = RequestLifecycle.next(request);
            switch (limits.encodeOnly() ? encodeOnly(request, now) : admit(request, now)) {
                case DONE -> {}
                case SKIP -> pending++;
                case STOP -> {
                    return;
                }
            }
            request = next;
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
        if (isStillBlocked(request, now)) {
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
            request.blockedSince = now;
        }
        return admission;
    }

    /// Whether a request that lacked blocks need not be looked up again. With as few free blocks as
    /// then it would be blocked again, unless more of its prefix has come into the cache meanwhile,
    /// which is looked up now and then.
    private boolean isStillBlocked(RequestState request, long now) {
        return request.blockedAt == pool.version()
                || (request.blockedAt >= 0
                        && pool.free() < request.blockedNeed
                        && now - request.blockedSince < BLOCKED_RETRY_NANOS);
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
        long needed =
                (long)
                                (blocksFor(to)
                                        - request.blocks.count()
                                        + lifecycle.promisedBlocks(blockTokens))
                        * groups;
        if (needed > pool.free() || !request.blocks.grow(pool, blocksFor(to))) {
            request.blockedNeed = needed;
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
        lifecycle.change(request, Change.START_LOAD);
        newLoads.add(id);
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
            request.blockedNeed = (long) (blocksFor(to) - request.blocks.count()) * groups;
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
        restart(request);
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
        if (request.status() != Status.RUNNING) { // else a synchronous load, in its own step
            lifecycle.change(request, Change.END_LOAD);
        }
    }

    /// A load failed as a whole: start over, perhaps from another source.
    void restartAfterLoad(RequestState request) {
        request.blocks.release(pool);
        restart(request);
    }

    /// A synchronous load was not reported with its step: wait for it like for an asynchronous one.
    void park(RequestState request) {
        encoders.stopped(request);
        lifecycle.change(request, Change.AWAIT_LOAD);
    }

    /// An item of an encode engine's request did not come after all: queue again.
    void encodeAgain(RequestState request) {
        lifecycle.change(request, Change.RESTART);
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
