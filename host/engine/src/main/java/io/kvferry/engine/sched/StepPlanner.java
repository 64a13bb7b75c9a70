// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.connector.GuardedKvScheduler;
import io.kvferry.engine.encoder.EncoderScheduler;
import io.kvferry.engine.sched.PrefixLookup.Found;
import io.kvferry.engine.sched.RequestLifecycle.Change;
import io.kvferry.engine.sched.RequestLifecycle.Status;
import io.kvferry.engine.sched.RequestState.Load;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult.LoadMode;

import java.util.ArrayList;
import java.util.List;

/// Decides what each step computes: running requests first, then requests whose load is done, then
/// waiting ones.
final class StepPlanner {
    private final Limits limits;
    private final KvCache cache;
    private final GuardedKvScheduler kv;
    private final KvTransfers kvTransfers;
    private final EncoderScheduler encoders;
    private final Telemetry telemetry;
    private final StepSchedule schedule = new StepSchedule();
    private final RequestLifecycle lifecycle;
    private final PrefixLookup lookups;
    private final StaleTransfers stale;

    /// Ids the runners have to forget.
    private final List<String> forgotten = new ArrayList<>();

    private final List<RequestState> encoded = new ArrayList<>();

    private int budget;
    private int pending;

    StepPlanner(
            Limits limits,
            RequestLifecycle lifecycle,
            KvCache cache,
            GuardedKvScheduler kv,
            KvTransfers kvTransfers,
            EncoderScheduler encoders,
            Telemetry telemetry) {
        this.limits = limits;
        this.lifecycle = lifecycle;
        this.cache = cache;
        this.kv = kv;
        this.lookups = new PrefixLookup(limits, cache, kv);
        this.kvTransfers = kvTransfers;
        this.stale = new StaleTransfers(limits.holdPatience(), kvTransfers, cache, telemetry);
        this.encoders = encoders;
        this.telemetry = telemetry;
    }

    private enum Verdict {
        DONE,
        /// Not now; the next one may go.
        SKIP,
        /// No room; requests behind it must wait as well, or it would starve.
        STOP
    }

    void enqueue(RequestState request) {
        lifecycle.change(request, Change.ENTER);
    }

    StepSchedule schedule() {
        return schedule;
    }

    /// How many waiting requests the last plan passed over; it looks at no more of them than may
    /// run.
    int deferred() {
        return pending;
    }

    /// Plans a step.
    void plan(long step, long now) {
        schedule.begin(step);
        encoders.beginStep();
        stale.beginStep();
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
        var running = lifecycle.running();
        for (int i = 0; i < running.size() && budget > 0; i++) {
            var request = running.get(i);
            int from = request.computed;
            int to = reach(request, from, now);
            if (to <= from) {
                continue;
            }
            while (!cache.grow(request, to)) {
                var victim = running.getLast();
                if (victim == request && stale.refuses(request, needed(request, to), now)) {
                    return false;
                }
                preempt(victim);
                if (victim == request) {
                    return false;
                }
            }
            take(request, from, to - from);
        }
        return schedule.preempted.isEmpty();
    }

    /// Up to which position the request can compute in this step; `from` when not at all.
    private int reach(RequestState request, int from, long now) {
        int to = Math.min(request.tokenCount(), from + budget);
        return request.hasItems ? encoders.reach(request.items, from, to, now) : to;
    }

    private void take(RequestState request, int from, int count) {
        schedule.add(request, from, count, request.admitted);
        request.admitted = false;
        budget -= count;
    }

    /// Takes the blocks of a running or ready request.
    void preempt(RequestState victim) {
        telemetry.metrics().count(Counter.PREEMPTIONS);
        victim.preemptions++;
        victim.blocks.release();
        restart(victim);
        schedule.preempted.add(victim.id);
    }

    /// Back to the head of the queue, without blocks.
    private void restart(RequestState request) {
        encoders.stopped(request.items);
        request.computed = 0;
        request.published = 0;
        request.runnerKnows = 0;
        request.attempt++;
        request.load = null;
        request.transfer = null;
        request.admitted = false;
        request.startsOver = false;
        PrefixLookup.reset(request);
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
            int to = reach(request, from, now);
            if (!cache.grow(request, Math.max(to, from))) {
                var victim = lifecycle.lastReady();
                if (lifecycle.running().isEmpty() && victim != null && victim != request) {
                    preempt(victim); // or two loaded requests would wait for each other for ever
                    continue;
                }
                encoders.stopped(request.items);
                stale.refuses(request, needed(request, to), now);
                return false;
            }
            kv.onAllocated(request, request.blocks, LoadAssignment.none(request.loadId()));
            run(request);
            if (to > from) {
                take(request, from, to - from);
            }
        }
        return true;
    }

    /// Free blocks that the request needs to continue up to a position.
    private long needed(RequestState request, int to) {
        return (long) (cache.blocksFor(to) - request.blocks.count()) * cache.groups();
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
                    if (limits.encodeOnly()
                            || !stale.refuses(
                                    request, request.blockedBelow - request.blocksLeft, now)) {
                        return;
                    }
                }
            }
            request = next;
        }
    }

    private Verdict encodeOnly(RequestState request, long now) {
        return switch (encoders.gather(request.items, now)) {
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
        if (request.pending.isEarly(now)) {
            return Verdict.SKIP;
        }
        if (lookups.isStillBlocked(request, now) && !stale.mayRefuse(request, now)) {
            return Verdict.STOP;
        }
        if (lookups.awaitsItem(request, now)) {
            boolean lacks = reach(request, request.itemFrom, now) <= request.itemFrom;
            // A request that waits or loads keeps no rows, or those that run could wait for them.
            encoders.stopped(request.items);
            if (lacks) {
                return Verdict.SKIP;
            }
        }
        var found = lookups.find(request, now);
        if (found.isEmpty()) {
            return Verdict.SKIP;
        }
        cache.hold(request, found.get().blocks());
        var verdict =
                found.get().mode() == LoadMode.ASYNC && found.get().promised().tokens() > 0
                        ? startLoad(request, found.get())
                        : admitNow(request, found.get(), now);
        if (verdict != Verdict.DONE) {
            encoders.stopped(request.items);
            request.blocks.release();
            request.blockedAt = -1;
        }
        if (verdict == Verdict.STOP) {
            lookups.blocked(request, now);
        }
        return verdict;
    }

    private Verdict startLoad(RequestState request, Found found) {
        int local = found.localTokens();
        int to = local + found.promised().tokens();
        // A waiting load holds its blocks and cannot be preempted: leave what running prefills
        // still need.
        long left = (long) lifecycle.promisedBlocks(cache.blockTokens()) * cache.groups();
        long needed = needed(request, to) + left;
        if (needed > cache.pool().free() || !cache.grow(request, to)) {
            request.blocksLacking = needed - cache.pool().free();
            request.blocksLeft = left;
            return Verdict.STOP;
        }
        decided(request, found);
        request.load = new Load(local, to, found.promised().shares(), false);
        if (!kvTransfers.load(request, local, to, LoadMode.ASYNC)) {
            refused(request);
            return Verdict.DONE;
        }
        lifecycle.change(request, Change.START_LOAD);
        return Verdict.DONE;
    }

    private Verdict admitNow(RequestState request, Found found, long now) {
        int local = found.localTokens();
        int from = local + found.promised().tokens();
        int to = reach(request, from, now);
        if (to <= from) {
            lookups.lacksItem(request, from, now);
            return Verdict.SKIP;
        }
        if (!cache.grow(request, to)) {
            request.blocksLacking = needed(request, to) - cache.pool().free();
            request.blocksLeft = 0;
            return Verdict.STOP;
        }
        decided(request, found);
        request.external = List.of();
        if (from == local) {
            kv.onAllocated(request, request.blocks, LoadAssignment.none(request.loadId()));
        } else {
            request.load = new Load(local, from, found.promised().shares(), true);
            if (!kvTransfers.load(request, local, from, LoadMode.SYNC)) {
                refused(request);
                return Verdict.DONE;
            }
        }
        run(request);
        take(request, from, to - from);
        return Verdict.DONE;
    }

    /// The request has the blocks for what was found.
    private void decided(RequestState request, Found found) {
        int local = found.localTokens();
        if (kv.present()) {
            var promised = found.promised();
            telemetry.decision(request, kv.instance(), promised.shares(), local, promised.reason());
        } else {
            telemetry.prefixFound(request, local);
        }
        request.localTokens = local;
        request.computed = local;
        cache.admit(request, found.blocks());
    }

    /// The connector failed to take a load over: the request starts over without it.
    private void refused(RequestState request) {
        var load = request.load;
        if (load != null) {
            request.breakPromise(load.shares, load.from, load.from);
        }
        restart(request);
    }

    /// A load is done and the request can run.
    void loaded(RequestState request) {
        if (request.status() != Status.RUNNING) { // else a synchronous load, in its own step
            lifecycle.change(request, Change.END_LOAD);
        }
    }

    /// A load failed as a whole: the request starts over, possibly from another source.
    void restartAfterLoad(RequestState request) {
        request.blocks.release();
        restart(request);
    }

    /// The reason why a waiting request was not admitted no longer applies.
    void lookUpAgain(RequestState request) {
        PrefixLookup.reset(request);
    }

    /// The workers are lost. Discards the plan of this step; new runners know no requests.
    void forgetStep(long step) {
        schedule.begin(step);
        schedule.finished = false;
        schedule.preempted.clear();
        encoded.clear();
        forgotten.clear();
    }

    /// A synchronous load was not reported with its step: wait for it like for an asynchronous one.
    void park(RequestState request) {
        encoders.stopped(request.items);
        lifecycle.change(request, Change.AWAIT_LOAD);
    }

    /// An item of an encode engine's request did not come after all: queue again.
    void encodeAgain(RequestState request) {
        lifecycle.change(request, Change.RESTART);
    }

    void forget(String requestId) {
        forgotten.add(requestId);
    }

    /// Ids of requests that the runners must forget. The caller clears the list once it has been
    /// sent.
    List<String> forgotten() {
        return forgotten;
    }

    /// Requests that only stale transfers keep from running.
    List<StaleTransfers.Refused> takeRefused() {
        return stale.take();
    }

    /// Requests of an encode engine that are done with this step.
    List<RequestState> encoded() {
        return encoded;
    }
}
