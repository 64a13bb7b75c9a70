// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import java.util.Arrays;
import java.util.List;

/// Mean, median and 99th percentile of some times, in milliseconds; nearest rank, all 0 without
/// any.
record Latencies(int count, double meanMs, double medianMs, double p99Ms) {
    static Latencies ofNanos(List<Long> nanos) {
        if (nanos.isEmpty()) {
            return new Latencies(0, 0, 0, 0);
        }
        long[] sorted = nanos.stream().mapToLong(Long::longValue).sorted().toArray();
        return new Latencies(
                sorted.length,
                Arrays.stream(sorted).average().orElse(0) / 1e6,
                rank(sorted, 0.5),
                rank(sorted, 0.99));
    }

    private static double rank(long[] sorted, double quantile) {
        int index = (int) Math.ceil(quantile * sorted.length) - 1;
        return sorted[Math.max(0, index)] / 1e6;
    }
}
