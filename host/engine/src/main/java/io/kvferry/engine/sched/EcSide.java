// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.PendingWork;
import io.kvferry.spi.kv.ResettableCache;
import io.kvferry.spi.kv.SchedulerObserver;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Supplier;

/// The scheduler half of the encoder-cache connector behind the same wall as [KvSide].
final class EcSide implements AutoCloseable {
    private final @Nullable EcSchedulerConnector half;
    private final ConnectorCapabilities capabilities;
    private final String instance;
    private final Observer observer;
    private boolean disabled;

    EcSide(
            @Nullable EcSchedulerConnector half,
            ConnectorCapabilities capabilities,
            String instance,
            Observer observer) {
        this.half = half;
        this.capabilities = capabilities;
        this.instance = instance;
        this.observer = observer;
    }

    boolean present() {
        return half != null;
    }

    void disable() {
        disabled = true;
    }

    void onRequest(String requestId, List<EcItem> items, TransferParams params) {
        if (half != null) {
            guard(requestId, "onRequest", () -> half.onRequest(requestId, items, params));
        }
    }

    LookupResult lookup(EcItem item) {
        if (half == null || disabled) {
            return LookupResult.miss();
        }
        var answer =
                guard(item.requestId(), "lookup", () -> half.lookup(item), LookupResult.miss());
        if (answer instanceof LookupResult.Hit hit && hit.tokens() != item.embeddings()) {
            observer.defect(
                    item.requestId(),
                    instance,
                    "hit of "
                            + hit.tokens()
                            + " rows for item "
                            + item.hash()
                            + " of "
                            + item.embeddings()
                            + "; taken as a miss");
            return LookupResult.miss();
        }
        return answer;
    }

    boolean onAllocated(EcItem item, Optional<TransferId> load) {
        if (half == null) {
            return true;
        }
        return guard(
                item.requestId(),
                "onAllocated",
                () -> {
                    half.onAllocated(item, load);
                    return true;
                },
                false);
    }

    void onFreed(String hash) {
        if (half != null) {
            guard("", "onFreed", () -> half.onFreed(hash));
        }
    }

    Optional<Payload> buildPlan(long step) {
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
            guard("", "onRevoked", () -> half.onRevoked(id));
        }
    }

    FinishDecision finish(String requestId, FinishReason reason) {
        if (half == null) {
            return FinishDecision.release();
        }
        var decision =
                guard(
                        requestId,
                        "finish",
                        () -> half.finish(requestId, reason),
                        FinishDecision.release());
        boolean refused = disabled || !capabilities.has(Feature.HOLD);
        return refused && decision instanceof FinishDecision.Hold hold
                ? new FinishDecision.Release(hold.params())
                : decision;
    }

    boolean hasPendingWork() {
        return half instanceof PendingWork pending
                && !disabled
                && guard("", "hasPendingWork", pending::hasPendingWork, false);
    }

    void observe() {
        if (half instanceof SchedulerObserver own) {
            guard("", "drainStats", () -> observer.metrics.addEc(own.drainStats()));
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
