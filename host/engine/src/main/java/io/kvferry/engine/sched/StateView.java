// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.connector.Transfers;
import io.kvferry.engine.encoder.EncoderScheduler;
import io.kvferry.engine.telemetry.Metrics;
import io.kvferry.engine.telemetry.Metrics.Gauge;

/// The state of the scheduler as gauges, and as text.
///
/// Threading: scheduler thread only.
final class StateView {
    private final Requests requests;
    private final RequestLifecycle lifecycle;
    private final KvCache cache;
    private final Memory memory;
    private final Metrics metrics;

    /// Who keeps blocks and encoder items.
    record Memory(
            KvTransfers blocks,
            Transfers kvTransfers,
            Transfers ecTransfers,
            EncoderScheduler encoders) {}

    StateView(
            Requests requests,
            RequestLifecycle lifecycle,
            KvCache cache,
            Memory memory,
            Metrics metrics) {
        this.requests = requests;
        this.lifecycle = lifecycle;
        this.cache = cache;
        this.memory = memory;
        this.metrics = metrics;
    }

    /// Publishes how many there are of what.
    void gauge() {
        metrics.set(Gauge.WAITING, lifecycle.waitingCount());
        metrics.set(Gauge.LOADING, lifecycle.loadingCount());
        metrics.set(Gauge.READY, lifecycle.readyCount());
        metrics.set(Gauge.RUNNING, lifecycle.running().size());
        metrics.set(Gauge.PREEMPTED, lifecycle.preemptedCount());
        metrics.set(Gauge.HELD, memory.kvTransfers.held() + memory.ecTransfers.held());
        metrics.set(Gauge.FREE_BLOCKS, cache.pool().free());
        metrics.set(Gauge.CACHED_BLOCKS, cache.pool().cached());
        metrics.set(Gauge.LEASED_BLOCKS, memory.blocks.leasedBlocks());
        metrics.set(Gauge.QUARANTINED_BLOCKS, memory.kvTransfers.quarantinedBlocks());
        metrics.set(Gauge.ENCODER_FREE, memory.encoders.freeRows());
    }

    /// For a log; linear.
    String describe() {
        var text = new StringBuilder("\n  requests:");
        for (var request : requests.live()) {
            text.append("\n    ")
                    .append(request)
                    .append(" blocks ")
                    .append(request.blocks.count())
                    .append(request.load == null ? "" : " loading")
                    .append(EncoderScheduler.describe(request.items));
        }
        return text.append("\n  KV transfers:")
                .append(memory.kvTransfers.describe())
                .append("\n  item transfers:")
                .append(memory.ecTransfers.describe())
                .append("\n  encoder cache: ")
                .append(memory.encoders.describe())
                .toString();
    }
}
