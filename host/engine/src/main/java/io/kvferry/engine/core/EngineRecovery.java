// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.core;

import io.kvferry.engine.connector.GuardedEcScheduler;
import io.kvferry.engine.connector.GuardedKvScheduler;
import io.kvferry.engine.connector.GuardedScheduler;
import io.kvferry.engine.connector.GuardedSide;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.recovery.ConnectorRecovery;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/// What of an engine is being opened again: its workers, its KV connector, its encoder-cache
/// connector. A composite opens its children again by itself, by the same rules.
///
/// Threading: scheduler thread, but for [#status].
final class EngineRecovery implements AutoCloseable {
    final WorkerRestart workers;
    final ConnectorRecovery kv;
    final ConnectorRecovery ec;
    private final GuardedScheduler<?> kvScheduler;
    private final GuardedScheduler<?> ecScheduler;

    /// Tells reopened connectors what they have missed, starting with the handshakes by rank.
    record Introductions(Consumer<List<Payload>> kv, Consumer<List<Payload>> ec) {}

    EngineRecovery(
            EngineCore.Parts parts,
            GuardedKvScheduler kv,
            GuardedEcScheduler ec,
            Introductions introductions,
            Telemetry telemetry) {
        var limits = parts.limits();
        var reopener = parts.reopener();
        int ranks = parts.namespace().tpSize() * parts.namespace().ppSize();
        this.workers = new WorkerRestart(reopener, limits, telemetry, parts.alarm()::ring);
        this.kvScheduler = kv;
        this.ecScheduler = ec;
        this.kv =
                new ConnectorRecovery(
                        kv.instance(),
                        new GuardedSide<>(
                                kv,
                                reopener::nextIncarnation,
                                reopener::openKv,
                                introductions.kv,
                                telemetry),
                        ranks,
                        limits.connectorPause(),
                        limits.connectorOpen());
        this.ec =
                new ConnectorRecovery(
                        ec.instance(),
                        new GuardedSide<>(
                                ec,
                                reopener::nextIncarnation,
                                reopener::openEc,
                                introductions.ec,
                                telemetry),
                        ranks,
                        limits.connectorPause(),
                        limits.connectorOpen());
    }

    /// Why a connector or the workers are off; empty if none is. Any thread.
    String status() {
        return Stream.of(
                        workers.status(),
                        kv.status(),
                        ec.status(),
                        kvScheduler.degraded(),
                        ecScheduler.degraded())
                .filter(each -> !each.isEmpty())
                .collect(Collectors.joining("; "));
    }

    /// Before a step is planned.
    void begin(long now) {
        begin(kv, kvScheduler, now);
        begin(ec, ecScheduler, now);
    }

    private static void begin(ConnectorRecovery recovery, GuardedScheduler<?> scheduler, long now) {
        scheduler
                .takeTooManyDefects()
                .ifPresent(defect -> recovery.off(scheduler.instance(), defect));
        recovery.begin(now);
    }

    /// The ranks have executed a step.
    ///
    /// @return whether the KV connector's halves are closed now, on every rank
    boolean kvExecuted(List<RankResult> results) {
        return kv.executed(ranks(results, RankResult::kvUnclosed));
    }

    /// As [#kvExecuted].
    boolean ecExecuted(List<RankResult> results) {
        return ec.executed(ranks(results, RankResult::ecUnclosed));
    }

    private static List<Integer> ranks(List<RankResult> results, Predicate<RankResult> those) {
        List<Integer> ranks = List.of();
        for (int rank = 0; rank < results.size(); rank++) {
            if (those.test(results.get(rank))) {
                ranks = ranks.isEmpty() ? new ArrayList<>() : ranks;
                ranks.add(rank);
            }
        }
        return ranks;
    }

    /// Takes in what a rank says of its halves.
    void takeIn(int rank, RankResult result, String kvName, String ecName) {
        result.kvDefect().ifPresent(defect -> kv.off(kvName + " on rank " + rank, defect));
        result.ecDefect().ifPresent(defect -> ec.off(ecName + " on rank " + rank, defect));
        result.kvOpened().ifPresent(opened -> kv.opened(rank, opened));
        result.ecOpened().ifPresent(opened -> ec.opened(rank, opened));
    }

    /// Whether the workers must be notified although there is nothing to compute.
    boolean hasNews() {
        return kv.hasNews() || ec.hasNews();
    }

    /// Whether the next step continues the recovery immediately.
    boolean isDue() {
        return kv.isDue() || ec.isDue();
    }

    /// Nanoseconds until [#begin] has something to do; [Long#MAX_VALUE] for never.
    long untilDue(long now) {
        return Math.min(kv.untilDue(now), ec.untilDue(now));
    }

    /// Resets the recovery of both connectors, since all workers are replaced.
    void reset() {
        kv.reset();
        ec.reset();
    }

    @Override
    public void close() {
        kv.close();
        ec.close();
        workers.close();
    }
}
