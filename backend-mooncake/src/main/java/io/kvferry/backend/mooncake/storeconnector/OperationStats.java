// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;

import org.jspecify.annotations.Nullable;

import java.util.Map;
import java.util.TreeMap;

/// What one kind of store call did since the last report, under the names of vLLM's metrics:
/// `mooncake_store_<operation>_...`.
///
/// Threading: any thread.
final class OperationStats {
    private final String name;
    private long calls;
    private long errors;
    private long keys;
    private long failedKeys;
    private long bytes;
    private @Nullable Distribution micros;

    OperationStats(String operation) {
        this.name = "mooncake_store_" + operation;
    }

    /// A call that answered.
    synchronized void done(long nanos, long allKeys, long failed, long moved) {
        calls++;
        keys += allKeys;
        failedKeys += failed;
        bytes += moved;
        var one = Distribution.of(nanos / 1000);
        micros = micros == null ? one : micros.merge(one);
    }

    /// A call that threw.
    synchronized void error(long allKeys) {
        calls++;
        errors++;
        keys += allKeys;
        failedKeys += allKeys;
    }

    synchronized Stats drain() {
        if (calls == 0) {
            return Stats.EMPTY;
        }
        var counters = new TreeMap<String, Long>();
        counters.put(name + "_total", calls);
        counters.put(name + "_keys_total", keys);
        counters.put(name + "_bytes_total", bytes);
        counters.put(name + "_failed_keys_total", failedKeys);
        counters.put(name + "_errors_total", errors);
        Map<String, Distribution> times =
                micros == null ? Map.of() : Map.of(name + "_time_us", micros);
        var stats = new Stats(counters, Map.of(), times);
        calls = 0;
        errors = 0;
        keys = 0;
        failedKeys = 0;
        bytes = 0;
        micros = null;
        return stats;
    }
}
