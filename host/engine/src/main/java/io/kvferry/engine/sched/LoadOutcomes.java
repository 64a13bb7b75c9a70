// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.connector.GuardedKvScheduler;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.Failure;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Share;

import java.util.ArrayList;
import java.util.List;

/// What follows when a load has ended: the request runs on, computes what is missing, starts over,
/// or fails.
final class LoadOutcomes {
    private final KvCache cache;
    private final GuardedKvScheduler kv;
    private final KvTransfers transfers;
    private final StepPlanner planner;
    private final Requests requests;
    private final Telemetry telemetry;

    LoadOutcomes(
            KvCache cache,
            GuardedKvScheduler kv,
            KvTransfers transfers,
            StepPlanner planner,
            Requests requests,
            Telemetry telemetry) {
        this.cache = cache;
        this.kv = kv;
        this.transfers = transfers;
        this.planner = planner;
        this.requests = requests;
        this.telemetry = telemetry;
    }

    /// Continues the requests whose loads have ended since the last call.
    void takeIn() {
        for (var load : transfers.takeEnded()) {
            ended(load.request(), load.result());
        }
    }

    private void ended(RequestState request, Completion.Result result) {
        var load = request.load;
        if (load == null) {
            return;
        }
        request.load = null;
        switch (result) {
            case Completion.Completed _ -> completed(request, load);
            case Completion.Failed(var failure, var blocks) ->
                    failed(request, load, failure, blocks);
            case Completion.Revoked _ ->
                    throw new IllegalStateException("revoked loads are reported as failed");
        }
    }

    private void completed(RequestState request, RequestState.Load load) {
        if (request.startsOver) {
            planner.schedule().discard(request);
            planner.restartAfterLoad(request);
            return;
        }
        request.external = delivered(request, load, load.to);
        telemetry.delivery(
                request.id, kv.instance(), load.shares, request.external, load.age(), "");
        // the last token is always computed, for its logits
        request.computed = Math.min(load.to, request.tokenCount() - 1);
        int whole = request.computed;
        request.computed = load.to;
        cache.publish(request);
        request.computed = whole;
        planner.loaded(request);
    }

    private void failed(
            RequestState request,
            RequestState.Load load,
            Failure failure,
            List<Completion.FailedBlocks> blocks) {
        int valid = validTo(request, load, blocks);
        var delivered = delivered(request, load, valid);
        telemetry.delivery(
                request.id, kv.instance(), load.shares, delivered, load.age(), failure.toString());
        request.breakPromise(load.shares, load.from, valid);
        planner.schedule().discard(request);
        if (request.failurePolicy == LoadFailurePolicy.FAIL) {
            requests.fail(request, failure);
            return;
        }
        telemetry.metrics().count(Counter.LOADS_RECOMPUTED);
        if (request.startsOver || (valid == load.from && (!load.sync || load.late))) {
            planner.restartAfterLoad(request);
            return;
        }
        request.external = delivered;
        request.computed = valid;
        request.runnerKnows = Math.min(request.runnerKnows, load.from);
        cache.publish(request);
        planner.loaded(request);
    }

    /// How far the tokens can be used. A failure that names what was not to be loaded is a defect,
    /// and one of all blocks.
    private int validTo(
            RequestState request, RequestState.Load load, List<Completion.FailedBlocks> blocks) {
        var mode = load.sync ? LoadMode.SYNC : LoadMode.ASYNC;
        var assigned = new LoadAssignment(request.loadId(), load.from, load.to, mode);
        assigned.defect(cache.spec(), blocks)
                .ifPresent(what ->
                        telemetry.defect(
                                request.id,
                                kv.instance(),
                                "a failed load names "
                                        + what
                                        + ", which was not to be loaded; taken as a failure of all blocks"));
        return assigned.validTo(cache.spec(), blocks);
    }

    /// Who brought the tokens up to `valid`: those who promised them, unless a composite knows
    /// better.
    private List<Share> delivered(RequestState request, RequestState.Load load, int valid) {
        int tokens = valid - load.from;
        var told = kv.delivered(request.loadId());
        boolean enough = told.stream().mapToLong(Share::tokens).sum() >= tokens;
        return within(enough ? told : load.shares, tokens);
    }

    private static List<Share> within(List<Share> shares, int tokens) {
        var kept = new ArrayList<Share>();
        int left = tokens;
        for (var share : shares) {
            int part = Math.min(left, share.tokens());
            if (part > 0) {
                kept.add(new Share(share.source(), share.tier(), part));
            }
            left -= part;
        }
        return kept;
    }
}
