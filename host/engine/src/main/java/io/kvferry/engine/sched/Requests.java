// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.Outcome;
import io.kvferry.engine.Usage;
import io.kvferry.engine.connector.GuardedKvScheduler;
import io.kvferry.engine.encoder.EncoderScheduler;
import io.kvferry.engine.sched.RequestLifecycle.Change;
import io.kvferry.engine.sched.RequestLifecycle.Status;
import io.kvferry.engine.telemetry.Metrics;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.Failure;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.TransferParams;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/// The requests in the engine, and how each of them ends.
///
/// Threading: scheduler thread only.
public final class Requests {
    private static final Logger LOG = LoggerFactory.getLogger(Requests.class);

    private final Map<String, RequestState> live = new LinkedHashMap<>();
    private final Admission admission;
    private final RequestLifecycle lifecycle;
    private final GuardedKvScheduler kv;
    private final KvTransfers kvTransfers;
    private final EncoderScheduler encoders;
    private final StepPlanner planner;
    private final Telemetry telemetry;
    private final Metrics metrics;

    Requests(
            Admission admission,
            RequestLifecycle lifecycle,
            GuardedKvScheduler kv,
            KvTransfers kvTransfers,
            EncoderScheduler encoders,
            StepPlanner planner,
            Telemetry telemetry) {
        this.admission = admission;
        this.lifecycle = lifecycle;
        this.kv = kv;
        this.kvTransfers = kvTransfers;
        this.encoders = encoders;
        this.planner = planner;
        this.telemetry = telemetry;
        this.metrics = telemetry.metrics();
    }

    /// A request arrives from its client's thread.
    public void accept(RequestState request) {
        metrics.count(Counter.REQUESTS_SUBMITTED);
        metrics.add(Counter.PROMPT_TOKENS, request.promptTokenCount());
        live.put(request.id, request);
        planner.enqueue(request);
        kv.onRequest(request);
        encoders.onRequest(request.items);
        if (request.generation.isAborted()) {
            end(request, FinishReason.ABORT, null);
        }
    }

    /// A request that arrived too late for the engine to take it in; on any thread.
    public void refuse(RequestState request, Failure failure) {
        if (request.generation.end(new Outcome.Failed(failure, usage(request)))) {
            admission.leave();
        }
    }

    public void abort(String id) {
        var request = live.get(id);
        if (request != null) {
            end(request, FinishReason.ABORT, null);
        }
    }

    public void abortAll() {
        for (var request : List.copyOf(live.values())) {
            end(request, FinishReason.ABORT, null);
        }
    }

    /// Fails every request, whatever goes wrong with some of them: each gets an outcome.
    public void failAll(Failure failure) {
        for (var request : List.copyOf(live.values())) {
            try {
                fail(request, failure);
            } catch (Throwable e) {
                LOG.error("failing request {}", request.id, e);
            }
            if (live.remove(request.id) != null) {
                admission.leave();
                request.generation.end(new Outcome.Failed(failure, usage(request)));
                if (!request.ended() && request.status() != Status.NEW) {
                    lifecycle.change(request, Change.END);
                }
            }
        }
    }

    /// The workers are lost, and everything that requests had computed or loaded. Requests that had
    /// something start over or fail, by their policy. They fail at the second loss, since they may
    /// be the cause.
    void restartOrFail(Failure failure) {
        var all = List.copyOf(live.values());
        for (var request : all.reversed()) { // each goes before those that came later
            if (request.status() == Status.WAITING) {
                planner.lookUpAgain(request);
            } else if (request.failurePolicy == LoadFailurePolicy.RECOMPUTE
                    && ++request.workersLost < 2) {
                planner.restartAfterLoad(request);
            } else {
                fail(request, failure);
            }
        }
    }

    /// In the order of their arrival.
    List<RequestState> live() {
        return List.copyOf(live.values());
    }

    public boolean isEmpty() {
        return live.isEmpty();
    }

    /// Fails the requests whose encoder item cannot be provided.
    void failBroken() {
        for (var broken : encoders.takeBroken()) {
            var request = live.get(broken.requestId());
            if (request != null) {
                fail(request, broken.failure());
            }
        }
    }

    void fail(RequestState request, Failure failure) {
        if (!request.ended()) {
            end(request, FinishReason.ERROR, failure);
        }
    }

    /// The one place where requests end, for every cause.
    void end(RequestState request, FinishReason reason, @Nullable Failure failure) {
        lifecycle.change(request, Change.END);
        planner.schedule().discard(request);
        boolean loading = request.load != null;
        var decision = kv.finish(request, request.blocks, reason);
        var ecParams = encoders.finish(request.items, reason);
        if (loading) {
            request.load = null;
            keepAfterLoad(request, decision);
        } else {
            switch (decision) {
                case FinishDecision.Release _ -> request.blocks.release();
                case FinishDecision.Hold(var id, var deadline, _) ->
                        kvTransfers.hold(id, deadline, request.blocks);
            }
        }
        planner.forget(request.id);
        planner.schedule().finished = true;
        var outcome = outcome(request, reason, failure, decision.params(), ecParams);
        live.remove(request.id);
        admission.leave();
        request.generation.end(outcome);
    }

    /// A request that ends while it loads: its blocks wait for the load, and for the hold if there
    /// is one.
    private void keepAfterLoad(RequestState request, FinishDecision decision) {
        if (decision instanceof FinishDecision.Hold(var id, var deadline, _)) {
            kvTransfers.hold(id, deadline, request.blocks.retained());
        }
        kvTransfers.abandon(request);
    }

    private Outcome outcome(
            RequestState request,
            FinishReason reason,
            @Nullable Failure failure,
            TransferParams kvParams,
            TransferParams ecParams) {
        var usage = usage(request);
        telemetry.ended(request.clock, failure == null ? reason : FinishReason.ERROR, usage);
        if (failure != null) {
            metrics.count(Counter.REQUESTS_FAILED);
            return new Outcome.Failed(failure, usage);
        }
        metrics.count(
                reason == FinishReason.ABORT
                        ? Counter.REQUESTS_ABORTED
                        : Counter.REQUESTS_FINISHED);
        return new Outcome.Finished(reason, request.generation.tokens(), kvParams, ecParams, usage);
    }

    private static Usage usage(RequestState request) {
        return new Usage(
                request.promptTokenCount(),
                request.generatedCount(),
                request.localTokens,
                request.external,
                request.promptComputed,
                request.preemptions);
    }
}
