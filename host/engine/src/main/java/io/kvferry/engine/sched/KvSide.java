// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockPoolUser;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.HandshakeSink;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.PendingWork;
import io.kvferry.spi.kv.ResettableCache;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerObserver;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Supplier;

/// The scheduler half of the KV connector behind a wall: no exception comes through, and no answer
/// that the contract does not allow. What is wrong is told to the [Observer] and taken as "no".
final class KvSide implements AutoCloseable {
    private final @Nullable SchedulerConnector half;
    private final ConnectorCapabilities capabilities;
    private final String instance;
    private final Observer observer;
    private final int blockTokens;
    private boolean disabled;

    KvSide(
            @Nullable SchedulerConnector half,
            ConnectorCapabilities capabilities,
            String instance,
            int blockTokens,
            Observer observer) {
        this.half = half;
        this.capabilities = capabilities;
        this.instance = instance;
        this.blockTokens = blockTokens;
        this.observer = observer;
    }

    boolean present() {
        return half != null;
    }

    String instance() {
        return instance;
    }

    /// A worker half is gone: from now on nothing is loaded, held or leased.
    void disable() {
        disabled = true;
    }

    boolean disabled() {
        return disabled;
    }

    void bind(BlockPool pool) {
        if (half instanceof BlockPoolUser user && capabilities.has(Feature.BLOCK_LEASES)) {
            user.bindBlockPool(pool);
        }
    }

    void handshakes(List<Payload> byRank) {
        if (half instanceof HandshakeSink sink && capabilities.has(Feature.HANDSHAKE)) {
            sink.onHandshakes(byRank);
        }
    }

    void onRequest(RequestState request) {
        if (half != null) {
            guard(request.id, "onRequest", () -> half.onRequest(request));
        }
    }

    LookupResult lookup(RequestState request, int localTokens) {
        if (half == null || disabled) {
            return LookupResult.miss();
        }
        observer.metrics.count(Counter.LOOKUPS);
        var answer =
                guard(
                        request.id,
                        "lookup",
                        () -> half.lookup(request, localTokens),
                        LookupResult.miss());
        if (answer instanceof LookupResult.Hit hit) {
            var wrong = wrong(request, localTokens, hit);
            if (wrong.isPresent()) {
                observer.defect(
                        request.id, instance, "illegal hit taken as a miss: " + wrong.get());
                return LookupResult.miss();
            }
        }
        return answer;
    }

    private Optional<String> wrong(RequestState request, int localTokens, LookupResult.Hit hit) {
        boolean sync = hit.mode() == LoadMode.SYNC;
        if (!capabilities.has(sync ? Feature.SYNC_LOAD : Feature.ASYNC_LOAD)) {
            return Optional.of(
                    hit.mode()
                            + " hit, but the connector does not claim "
                            + (sync ? Feature.SYNC_LOAD : Feature.ASYNC_LOAD));
        }
        int most = request.tokenCount() - (sync ? 1 : 0);
        if ((long) localTokens + hit.tokens() > most) {
            return Optional.of(
                    hit.mode()
                            + " hit of "
                            + hit.tokens()
                            + " tokens beyond "
                            + localTokens
                            + " local ones of "
                            + request.tokenCount()
                            + "; at most "
                            + most
                            + " in all");
        }
        int sum = localTokens + hit.tokens();
        if (sum % blockTokens != 0 && sum < request.tokenCount() - 1) {
            return Optional.of(
                    "hit up to token "
                            + sum
                            + ", which is neither the end of a block nor of the request");
        }
        return Optional.empty();
    }

    /// @return whether the connector took the call
    boolean onAllocated(RequestState request, LoadAssignment load) {
        if (half == null) {
            return true;
        }
        return guard(
                request.id,
                "onAllocated",
                () -> {
                    half.onAllocated(request, request.blocks, load);
                    return true;
                },
                false);
    }

    /// The plan; empty when the connector failed to make one.
    Optional<Payload> buildPlan(StepView step) {
        if (half == null) {
            return Optional.of(Payload.EMPTY);
        }
        return guard("", "buildPlan", () -> Optional.of(half.buildPlan(step)), Optional.empty());
    }

    MergedReport onReport(MergedReport report) {
        return half == null ? report : guard("", "onReport", () -> half.onReport(report), report);
    }

    void onRevoked(TransferId id) {
        if (half != null) {
            guard(id.subject(), "onRevoked", () -> half.onRevoked(id));
        }
    }

    FinishDecision finish(RequestState request, BlockTable blocks, FinishReason reason) {
        if (half == null) {
            return FinishDecision.release();
        }
        var decision =
                guard(
                        request.id,
                        "finish",
                        () -> half.finish(request, blocks, reason),
                        FinishDecision.release());
        if (decision instanceof FinishDecision.Hold hold) {
            if (!capabilities.has(Feature.HOLD)) {
                observer.defect(
                        request.id, instance, "answered a hold without claiming HOLD; released");
                return new FinishDecision.Release(hold.params());
            }
            if (disabled || blocks.groups() == 0 || blocks.count(0) == 0) {
                return new FinishDecision.Release(hold.params());
            }
        }
        return decision;
    }

    boolean hasPendingWork() {
        return half instanceof PendingWork pending
                && !disabled
                && guard("", "hasPendingWork", pending::hasPendingWork, false);
    }

    /// Figures and cache events of this half since the last call.
    void observe() {
        if (half instanceof SchedulerObserver own) {
            guard("", "drainStats", () -> observer.metrics.addKv(own.drainStats()));
            guard("", "drainEvents", () -> own.drainEvents().forEach(observer::forward));
        }
    }

    CompletionStage<Boolean> reset(Deadline limit) {
        return half instanceof ResettableCache cache && capabilities.has(Feature.RESET)
                ? guard(
                        "",
                        "resetCache",
                        () -> cache.resetCache(limit),
                        CompletableFuture.completedStage(false))
                : CompletableFuture.completedStage(true);
    }

    private void guard(String requestId, String method, Runnable call) {
        guard(
                requestId,
                method,
                () -> {
                    call.run();
                    return true;
                },
                false);
    }

    private <T> T guard(String requestId, String method, Supplier<T> call, T otherwise) {
        try {
            T answer = call.get();
            if (answer != null) {
                return answer;
            }
            observer.defect(requestId, instance, method + " answered null");
        } catch (Exception | LinkageError | AssertionError e) { // the one border to the plugin
            observer.defect(requestId, instance, method + " threw " + e);
        }
        return otherwise;
    }

    @Override
    public void close() {
        if (half != null) {
            guard("", "close", half::close);
        }
    }
}
