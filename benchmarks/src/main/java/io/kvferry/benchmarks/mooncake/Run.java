// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

/// What one contender did in one round of a row.
///
/// @param cpuNanos processor time of both sides together
public record Run(double bytes, long nanos, long cpuNanos) {
    /// GB/s (10^9).
    public double rate() {
        return bytes / nanos;
    }

    /// Processor time in milliseconds per GB (10^9 bytes).
    public double cpuMillisPerGb() {
        return cpuNanos / 1e6 / (bytes / 1e9);
    }
}
