// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.PendingWork;
import io.kvferry.spi.kv.ResettableCache;
import io.kvferry.spi.kv.SchedulerObserver;
import io.kvferry.spi.observe.Stats;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Consumer;
import java.util.function.Supplier;

/// A connector's scheduler half behind a wall: no exception comes through, and no answer that the
/// contract does not allow. What is wrong is told to the [Observer] and taken as "no".
///
/// @param <H> the half's interface
abstract class ConnectorSide<H extends AutoCloseable> implements AutoCloseable {
    final @Nullable H half;
    final ConnectorCapabilities capabilities;
    final Observer observer;
    private final String instance;
    private final Consumer<Stats> figures;
    private boolean disabled;

    /// @param figures takes the half's own
    ConnectorSide(
            @Nullable H half,
            ConnectorCapabilities capabilities,
            String instance,
            Observer observer,
            Consumer<Stats> figures) {
        this.half = half;
        this.capabilities = capabilities;
        this.instance = instance;
        this.observer = observer;
        this.figures = figures;
    }

    final boolean present() {
        return half != null;
    }

    final String instance() {
        return instance;
    }

    /// A worker half is gone: from now on nothing is loaded, held or leased.
    final void disable() {
        disabled = true;
    }

    final boolean disabled() {
        return disabled;
    }

    final boolean hasPendingWork() {
        return half instanceof PendingWork pending
                && !disabled
                && guard("", "hasPendingWork", pending::hasPendingWork, false);
    }

    /// Figures and cache events of this half since the last call.
    final void observe() {
        if (half instanceof SchedulerObserver own) {
            guard("", "drainStats", () -> figures.accept(own.drainStats()));
            guard("", "drainEvents", () -> own.drainEvents().forEach(observer::forward));
        }
    }

    final CompletionStage<Boolean> reset(Deadline limit) {
        return half instanceof ResettableCache cache && capabilities.has(Feature.RESET)
                ? guard(
                        "",
                        "resetCache",
                        () -> cache.resetCache(limit),
                        CompletableFuture.completedStage(false))
                : CompletableFuture.completedStage(true);
    }

    /// @return whether the half took the call
    final boolean guard(String requestId, String method, Runnable call) {
        return guard(
                requestId,
                method,
                () -> {
                    call.run();
                    return true;
                },
                false);
    }

    final <T> T guard(String requestId, String method, Supplier<T> call, T otherwise) {
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
    public abstract void close();
}
