// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;

import org.jspecify.annotations.Nullable;

import java.util.EnumMap;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/// What one kind of store call did since the last report, by how the calls ended:
/// `mooncake_store_<operation>_<status>_...`. vLLM has the same figures, with operation and status
/// as labels.
///
/// Threading: any thread.
final class OperationStats {
    private final String operation;
    private final Map<Status, Figures> byStatus = new EnumMap<>(Status.class);

    /// vLLM's.
    private enum Status {
        OK,
        /// Some keys failed.
        PARTIAL_FAILURE,
        /// The call threw.
        ERROR
    }

    private static final class Figures {
        long calls;
        long keys;
        long failedKeys;
        long bytes;
        @Nullable Distribution micros;
    }

    OperationStats(String operation) {
        this.operation = operation;
    }

    /// A call that answered.
    void done(long nanos, long keys, long failed, long moved) {
        add(failed == 0 ? Status.OK : Status.PARTIAL_FAILURE, nanos, keys, failed, moved);
    }

    /// A call that threw.
    void error(long nanos, long keys) {
        add(Status.ERROR, nanos, keys, keys, 0);
    }

    private synchronized void add(Status status, long nanos, long keys, long failed, long moved) {
        var figures = byStatus.computeIfAbsent(status, _ -> new Figures());
        figures.calls++;
        figures.keys += keys;
        figures.failedKeys += failed;
        figures.bytes += moved;
        var one = Distribution.of(nanos / 1000);
        figures.micros = figures.micros == null ? one : figures.micros.merge(one);
    }

    synchronized Stats drain() {
        if (byStatus.isEmpty()) {
            return Stats.EMPTY;
        }
        var counters = new TreeMap<String, Long>();
        var times = new TreeMap<String, Distribution>();
        byStatus.forEach((status, figures) -> {
            var name = "mooncake_store_" + operation + "_" + status.name().toLowerCase(Locale.ROOT);
            counters.put(name + "_total", figures.calls);
            counters.put(name + "_keys_total", figures.keys);
            counters.put(name + "_bytes_total", figures.bytes);
            counters.put(name + "_failed_keys_total", figures.failedKeys);
            if (figures.micros != null) {
                times.put(name + "_time_us", figures.micros);
            }
        });
        byStatus.clear();
        return new Stats(counters, Map.of(), times);
    }
}
