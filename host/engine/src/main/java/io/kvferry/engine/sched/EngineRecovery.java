// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.connector.ConnectorRecovery;
import io.kvferry.engine.connector.GuardedEcScheduler;
import io.kvferry.engine.connector.GuardedKvScheduler;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.wire.Payload;

import java.util.List;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/// What of an engine is being opened again: its workers, its KV connector, its encoder-cache
/// connector.
///
/// Threading: scheduler thread, but for [#status].
final class EngineRecovery implements AutoCloseable {
    final WorkerRestart workers;
    final ConnectorRecovery<SchedulerConnector> kv;
    final ConnectorRecovery<EcSchedulerConnector> ec;

    /// Who tells a connector that is on again what it has missed, from the handshakes by rank on.
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
        this.kv =
                new ConnectorRecovery<>(
                        kv,
                        ranks,
                        reopener::nextIncarnation,
                        reopener::openKv,
                        introductions.kv,
                        limits.connectorPause(),
                        telemetry);
        this.ec =
                new ConnectorRecovery<>(
                        ec,
                        ranks,
                        reopener::nextIncarnation,
                        reopener::openEc,
                        introductions.ec,
                        limits.connectorPause(),
                        telemetry);
    }

    /// Why something is off; empty while nothing is. Any thread.
    String status() {
        return Stream.of(workers.status(), kv.status(), ec.status())
                .filter(each -> !each.isEmpty())
                .collect(Collectors.joining("; "));
    }

    /// Before a step is planned.
    void begin(long now) {
        kv.begin(now);
        ec.begin(now);
    }

    /// Takes in what a rank says of its halves.
    void takeIn(int rank, RankResult result, String kvName, String ecName) {
        result.kvDefect().ifPresent(defect -> kv.off(kvName + " on rank " + rank, defect));
        result.ecDefect().ifPresent(defect -> ec.off(ecName + " on rank " + rank, defect));
        result.kvOpened().ifPresent(opened -> kv.opened(rank, opened));
        result.ecOpened().ifPresent(opened -> ec.opened(rank, opened));
    }

    /// Whether the workers have to hear something although nothing is computed.
    boolean hasNews() {
        return kv.hasNews() || ec.hasNews();
    }

    /// Whether the next step goes on with it at once.
    boolean isDue() {
        return kv.isDue() || ec.isDue();
    }

    /// Nanoseconds until [#begin] has something to do; [Long#MAX_VALUE] for never.
    long untilDue(long now) {
        return Math.min(kv.untilDue(now), ec.untilDue(now));
    }

    /// All workers and both connectors begin anew.
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
