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
    private final GuardedKvScheduler kv;
    private final KvTransfers kvTransfers;
    private final EncoderScheduler encoders;
    private final Telemetry telemetry;
    private final PrefixCache prefixes;
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
            GuardedKvScheduler kv,
            KvTransfers kvTransfers,
            EncoderScheduler encoders,
            Telemetry telemetry) {
        this.limits = limits;
        this.blockTokens = blockTokens;
        this.groups = groups;
        this.lifecycle = lifecycle;
        this.pool = pool;
        this.prefixes = new PrefixCache(limits.prefixCache(), blockTokens, groups, pool, telemetry);
        this.kv = kv;
        this.kvTransfers = kvTransfers;
        this.encoders = encoders;
        this.telemetry = telemetry;
    }

    private enum Verdict {
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
        telemetry.metrics.count(Counter.PREEMPTIONS);
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
        request.clock.start();
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

    private Verdict encodeOnly(RequestState request, long now) {
        return switch (encoders.gather(request, now)) {
            case NO_ROOM -> Verdict.STOP;
            case UNDER_WAY -> Verdict.SKIP;
            case ALL_THERE -> {
                encoded.add(request);
                run(request);
                yield Verdict.DONE;
            }
        };
    }

    private Verdict admit(RequestState request, long now) {
        if (request.retryAt != 0 && now - request.retryAt < 0) {
            return Verdict.SKIP;
        }
        if (isStillBlocked(request, now)) {
            return Verdict.STOP;
        }
        int cached = prefixes.find(request);
        int local = cached * blockTokens;
        var answer = kv.lookup(request, local);
        if (answer instanceof LookupResult.Pending(var retryAfter)
                && stillPending(request, retryAfter, now)) {
            return Verdict.SKIP;
        }
        request.pendingSince = 0;
        request.retryAt = 0;
        prefixes.hold(request, cached);
        var verdict =
                answer instanceof LookupResult.Hit hit
                        ? admitHit(request, local, hit, now)
                        : admitMiss(request, local, "", now);
        if (verdict != Verdict.DONE) {
            encoders.stopped(request);
            request.blocks.release(pool);
            request.blockedAt = verdict == Verdict.STOP ? pool.version() : -1;
            request.blockedSince = now;
        }
        return verdict;
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
            telemetry.metrics.count(Counter.LOOKUPS_PENDING_TIMEOUT);
            telemetry.incident(
                    request.id, "lookup-timeout", kv.instance(), "still pending; taken as a miss");
            return false;
        }
        request.retryAt = now + Limits.nanos(retryAfter, left) | 1;
        return true;
    }

    private Verdict admitHit(RequestState request, int local, LookupResult.Hit hit, long now) {
        var usable = UsableHit.of(hit, request, blockTokens);
        if (usable.tokens() == 0) {
            return admitMiss(request, local, usable.reason(), now);
        }
        return hit.mode() == LoadMode.ASYNC
                ? startLoad(request, local, usable)
                : admitNow(request, local, usable, now);
    }

    private Verdict startLoad(RequestState request, int local, UsableHit usable) {
        int to = local + usable.tokens();
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
            return Verdict.STOP;
        }
        telemetry.decision(request, kv.instance(), usable.shares(), local, usable.reason());
        request.localTokens = local;
        request.computed = local;
        request.published = local / blockTokens;
        request.load = new Load(local, to, usable.shares(), false);
        var id = loadId(request);
        kvTransfers.load(id, request);
        if (!kv.onAllocated(request, new LoadAssignment(id, local, to, LoadMode.ASYNC))) {
            refuse(request, id);
            return Verdict.DONE;
        }
        lifecycle.change(request, Change.START_LOAD);
        newLoads.add(id);
        return Verdict.DONE;
    }

    private Verdict admitMiss(RequestState request, int local, String reason, long now) {
        return admitNow(request, local, UsableHit.nothing(reason), now);
    }

    private Verdict admitNow(RequestState request, int local, UsableHit usable, long now) {
        int from = local + usable.tokens();
        int to = encoders.reach(request, from, Math.min(request.tokenCount(), from + budget), now);
        if (to <= from) {
            return Verdict.SKIP;
        }
        if (!request.blocks.grow(pool, blocksFor(to))) {
            request.blockedNeed = (long) (blocksFor(to) - request.blocks.count()) * groups;
            return Verdict.STOP;
        }
        if (kv.present()) {
            telemetry.decision(request, kv.instance(), usable.shares(), local, usable.reason());
        } else {
            telemetry.prefixFound(request, local);
        }
        request.localTokens = local;
        request.external = List.of();
        request.computed = local;
        request.published = local / blockTokens;
        var id = loadId(request);
        if (from == local) {
            kv.onAllocated(request, LoadAssignment.none(id));
        } else {
            request.load = new Load(local, from, usable.shares(), true);
            kvTransfers.load(id, request);
            if (!kv.onAllocated(request, new LoadAssignment(id, local, from, LoadMode.SYNC))) {
                refuse(request, id);
                return Verdict.DONE;
            }
            newLoads.add(id);
        }
        run(request);
        take(request, from, to - from);
        return Verdict.DONE;
    }

    /// The connector failed to take a load over: nobody knows whether it will write, so the blocks
    /// stay out of use until the workers have answered, and the request starts over without it.
    private void refuse(RequestState request, TransferId id) {
        var load = request.load;
        if (load != null) {
            request.breakPromise(load.shares, load.from, load.from);
        }
        kvTransfers.refuse(id, request.blocks);
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

    /// Whatever kept a waiting request from being admitted is no longer so.
    void lookUpAgain(RequestState request) {
        request.pendingSince = 0;
        request.retryAt = 0;
        request.blockedAt = -1;
    }

    /// The workers are gone, and the plan of this step with them; new runners know no request.
    void forgetStep(long step) {
        schedule.begin(step);
        schedule.finished.clear();
        schedule.preempted.clear();
        newLoads.clear();
        encoded.clear();
        forgotten.clear();
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
