// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

/// What a hand-off is measured against, in turns with it.
interface Limit {
    /// How long it takes for as many bytes.
    long nanos(long bytes) throws Exception;
}
