// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.connector;

import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.StatsTotals;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.recovery.DefectRate;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Supplier;

/// A connector's scheduler half. Turns exceptions and illegal answers into misses, releases and
/// empty plans, and reports each as a defect to [Telemetry].
///
/// @param <H> the half's interface
public abstract class GuardedScheduler<H extends SchedulerHalf> implements AutoCloseable {
    /// What the report completed is lost: no half repeats it.
    private static final Failure NOT_SETTLED =
            new Failure(ErrorCode.INTERNAL, "a report could not be settled");

    private @Nullable H half;
    final ConnectorCapabilities capabilities;
    final Telemetry telemetry;
    private final String instance;
    private final StatsTotals stats;
    private volatile boolean disabled;
    private final DefectRate defects = new DefectRate();
    private final boolean configured;

    /// What a composite does without; as of the last step.
    private volatile String degraded = "";

    /// @param stats takes those of this connector's halves
    GuardedScheduler(
            @Nullable H half,
            ConnectorCapabilities capabilities,
            String instance,
            Telemetry telemetry,
            StatsTotals stats) {
        this.half = half;
        this.configured = half != null;
        this.capabilities = capabilities;
        this.instance = instance;
        this.telemetry = telemetry;
        this.stats = stats;
    }

    /// Whether the engine has this connector, off or not. Any thread.
    public final boolean present() {
        return configured;
    }

    public final String instance() {
        return instance;
    }

    /// The half, unless there is none or it is off.
    final @Nullable H active() {
        return disabled ? null : half;
    }

    /// A worker half is lost: from now on nothing is loaded, held or leased.
    public final void disable() {
        disabled = true;
        degraded = "";
    }

    /// Which parts of a composite are off, and why; empty while none is. Any thread.
    public final String degraded() {
        return degraded;
    }

    /// Another half takes over; there is none in between two incarnations.
    public final void replace(@Nullable H other) {
        close();
        half = other;
        disabled = false;
        degraded = "";
        defects.reset();
    }

    public final boolean disabled() {
        return disabled;
    }

    public final void handshakes(List<Payload> byRank) {
        var target = active();
        if (target != null && capabilities.has(Feature.HANDSHAKE)) {
            target.onHandshakes(byRank);
        }
    }

    /// Nanoseconds until this half needs a step; zero or less when it is due, [Long#MAX_VALUE] when
    /// it needs none.
    public final long untilPendingWork() {
        var target = active();
        if (target == null) {
            return Long.MAX_VALUE;
        }
        var due = guard("", "pendingWork", target::pendingWork, Optional.<Deadline>empty());
        return due.isPresent() ? due.get().remainingNanos() : Long.MAX_VALUE;
    }

    /// What the engine is to act on.
    final MergedReport settle(MergedReport report) {
        var target = active();
        if (target instanceof SchedulerHalf.Composite composite) {
            boolean settled = false;
            try {
                var answer =
                        guard(
                                "",
                                "settle",
                                () -> Optional.of(composite.settle(report)),
                                Optional.<MergedReport>empty());
                settled = answer.isPresent();
                return answer.orElse(report);
            } finally {
                if (!settled) { // also where there was no memory to say so
                    defects.giveUp(NOT_SETTLED);
                }
            }
        }
        if (target != null) {
            guard("", "onReport", () -> target.onReport(report));
        }
        return report;
    }

    final void onRevoked(TransferId id) {
        var target = active();
        if (target != null) {
            guard("", "onRevoked", () -> target.onRevoked(id));
        }
    }

    /// Takes in statistics and cache events of this half since the last call.
    public final void observe() {
        var target = active();
        if (target == null) {
            return;
        }
        guard("", "drainStats", () -> stats.add(StatsTotals.SCHEDULER, target.drainStats()));
        if (target instanceof SchedulerHalf.Composite composite) {
            degraded = guard("", "degraded", composite::degraded, "");
        }
        if (capabilities.has(Feature.EVENTS)) {
            guard("", "drainEvents", () -> target.drainEvents().forEach(telemetry::forward));
        }
    }

    /// Takes in statistics and cache events of a rank's worker half.
    final void observe(int rank, Stats reported, List<CacheEvent> events) {
        stats.add(rank, reported);
        if (capabilities.has(Feature.EVENTS)) {
            events.forEach(telemetry::forward);
        }
    }

    /// Whether the connector keeps what it is to forget at a reset.
    public final boolean canReset() {
        return configured && capabilities.has(Feature.RESET);
    }

    public final CompletionStage<Boolean> reset(Deadline limit) {
        if (!canReset()) {
            return CompletableFuture.completedStage(true);
        }
        var target = active();
        CompletionStage<Boolean> not = CompletableFuture.completedStage(false);
        return target == null
                ? not
                : guard("", "resetCache", () -> answered(target.resetCache(limit)), not);
    }

    /// A stage of ours: a plugin's may end with null, and need not be combinable with others.
    private static CompletionStage<Boolean> answered(CompletionStage<Boolean> ofPlugin) {
        var answer = new CompletableFuture<Boolean>();
        ofPlugin.whenComplete((emptied, failure) -> {
            if (failure == null) {
                answer.complete(Boolean.TRUE.equals(emptied));
            } else {
                answer.completeExceptionally(failure);
            }
        });
        return answer;
    }

    /// The half's answer to the end of a request, or a release where a hold is illegal.
    final FinishDecision legal(String requestId, FinishDecision decision) {
        if (!(decision instanceof FinishDecision.Hold hold)) {
            return decision;
        }
        var release = new FinishDecision.Release(hold.params());
        if (hold.id().direction() != TransferId.Direction.SAVE) {
            defect(
                    requestId,
                    "answered a hold under " + hold.id() + ", which is the id of a load; released");
            return release;
        }
        if (!capabilities.has(Feature.HOLD)) {
            defect(requestId, "answered a hold without claiming HOLD; released");
            return release;
        }
        return disabled ? release : hold;
    }

    /// Records that a lookup is pending.
    ///
    /// @param what was looked up, for the report of one that took too long
    /// @param limit how long it may be pending
    /// @return whether to repeat it; if not, it has exceeded the limit and counts as a miss
    public final boolean repeats(
            PendingLookup lookup,
            LookupResult.Pending answer,
            String requestId,
            String what,
            Duration limit,
            long now) {
        if (lookup.repeat(answer.retryAfter(), limit, now)) {
            return true;
        }
        telemetry.metrics().count(Counter.LOOKUPS_PENDING_TIMEOUT);
        telemetry.incident(
                requestId, "lookup-timeout", instance, what + " still pending; taken as a miss");
        return false;
    }

    /// The half broke its contract.
    final void defect(String requestId, String what) {
        telemetry.defect(requestId, instance, what);
        defects.add(what);
    }

    /// Why the half should be given up, once.
    public final Optional<Failure> takeTooManyDefects() {
        return defects.takeTooMany();
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
            defect(requestId, method + " answered null");
        } catch (Throwable e) { // the one border to the plugin
            defect(requestId, method + " threw " + e);
        }
        return otherwise;
    }

    @Override
    public final void close() {
        var open = half;
        half = null;
        if (open != null) {
            guard("", "close", open::close);
        }
    }
}
