// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.benchmarks.replay.Trace;

import org.junit.jupiter.api.Test;

/// The store on a trace: what an exact cache finds is the bound, and without a limit it is reached.
class StoreReplayTest {
    @Test
    void findsWhatACacheWithoutLimitFinds() {
        var trace = Trace.made(400);
        int unlimited = (int) (trace.distinct() / 0.85);
        assertThat(StoreReplay.hits(trace, unlimited)).isEqualTo(trace.exactLru(unlimited));
    }

    @Test
    void findsLessInASmallStoreAndNeverMoreThanThereIs() {
        var trace = Trace.made(400);
        long unlimited = trace.exactLru(trace.distinct());
        long small = StoreReplay.hits(trace, trace.distinct() / 4);
        assertThat(small).isPositive().isLessThan(unlimited);
    }
}
