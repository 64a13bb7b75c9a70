// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.transfer.TransferOutcome;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.LongAdder;

/// An agent's own measurements of one of its backends, independent of the backend's statistics.
///
/// Threading: any thread.
final class BackendStats {
    private final LongAdder transfers = new LongAdder();
    private final LongAdder failures = new LongAdder();
    private final LongAdder bytes = new LongAdder();
    private final LongAdder micros = new LongAdder();

    void count(TransferOutcome outcome, long nanos) {
        transfers.increment();
        micros.add(nanos / 1000);
        switch (outcome) {
            case TransferOutcome.Done done -> bytes.add(done.bytes());
            case TransferOutcome.Failed _, TransferOutcome.TimedOut _ -> failures.increment();
            case TransferOutcome.Cancelled _ -> {}
        }
    }

    Stats drain() {
        var figures = new TreeMap<String, Long>();
        put(figures, "transfers", transfers);
        put(figures, "transfer_failures", failures);
        put(figures, "transfer_bytes", bytes);
        put(figures, "transfer_us", micros);
        return new Stats(figures, Map.of(), Map.of());
    }

    private static void put(TreeMap<String, Long> figures, String name, LongAdder sum) {
        long since = sum.sumThenReset();
        if (since != 0) {
            figures.put(name, since);
        }
    }
}
