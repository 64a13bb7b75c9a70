// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.spi.Failure;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.LookupResult.Share;
import io.kvferry.spi.kv.TransferResult;

import java.util.ArrayList;
import java.util.List;
import java.util.function.BiConsumer;

/// What follows when a load has ended: the request runs on, computes what is missing, starts over,
/// or fails.
final class Loads {
    private final int blockTokens;
    private final Scheduler scheduler;
    private final KvSide kv;
    private final Observer observer;
    private final BiConsumer<RequestState, Failure> fail;

    Loads(
            int blockTokens,
            Scheduler scheduler,
            KvSide kv,
            Observer observer,
            BiConsumer<RequestState, Failure> fail) {
        this.blockTokens = blockTokens;
        this.scheduler = scheduler;
        this.kv = kv;
        this.observer = observer;
        this.fail = fail;
    }

    void ended(RequestState request, TransferResult result) {
        var load = request.load;
        if (load == null) {
            return;
        }
        request.load = null;
        switch (result) {
            case TransferResult.Completed _ -> completed(request, load);
            case TransferResult.Failed(var failure, var blocks) ->
                    failed(request, load, failure, blocks);
            case TransferResult.Revoked _ ->
                    throw new IllegalStateException("the desk turns revocations into failures");
        }
    }

    private void completed(RequestState request, RequestState.Load load) {
        observer.delivery(request, kv.instance(), load, load.to, "");
        request.external = load.shares;
        // the last token is always computed, for its logits
        request.computed = Math.min(load.to, request.tokenCount() - 1);
        int whole = request.computed;
        request.computed = load.to;
        scheduler.publish(request);
        request.computed = whole;
        scheduler.loaded(request);
    }

    private void failed(
            RequestState request,
            RequestState.Load load,
            Failure failure,
            List<TransferResult.FailedBlocks> blocks) {
        int valid = validTo(load, blocks);
        observer.delivery(request, kv.instance(), load, valid, failure.toString());
        request.breakPromise(load.shares, load.from, valid);
        scheduler.schedule().discard(request);
        if (request.failurePolicy == LoadFailurePolicy.FAIL) {
            fail.accept(request, failure);
            return;
        }
        observer.metrics.count(Counter.LOADS_RECOMPUTED);
        if (valid == load.from && !load.sync) {
            scheduler.restartAfterLoad(request);
            return;
        }
        request.external = within(load, valid);
        request.computed = valid;
        request.runnerKnows = Math.min(request.runnerKnows, load.from);
        scheduler.publish(request);
        scheduler.loaded(request);
    }

    /// Tokens whose KV can be used, in whole blocks.
    private int validTo(RequestState.Load load, List<TransferResult.FailedBlocks> blocks) {
        if (blocks.isEmpty()) {
            return load.from;
        }
        int valid = load.to;
        for (var failed : blocks) {
            for (int position : failed.positions()) {
                valid = Math.min(valid, position * blockTokens);
            }
        }
        return Math.max(valid, load.from) / blockTokens * blockTokens;
    }

    private static List<Share> within(RequestState.Load load, int valid) {
        var kept = new ArrayList<Share>();
        int left = valid - load.from;
        for (var share : load.shares) {
            int tokens = Math.min(left, share.tokens());
            if (tokens > 0) {
                kept.add(new Share(share.source(), share.tier(), tokens));
            }
            left -= tokens;
        }
        return kept;
    }
}
