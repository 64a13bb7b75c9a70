// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

/// What a hand-off is measured against, in turns with it.
interface Limit {
    /// What it takes for as many bytes.
    Cost of(long bytes) throws Exception;

    /// @param cpuNanos processor time, all threads together
    record Cost(long nanos, long cpuNanos) {}
}
