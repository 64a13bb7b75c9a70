// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.wire.Payload;

import java.util.ArrayList;
import java.util.List;

/// What an engine does with the halves of connectors of every family.
public final class Halves {
    private Halves() {}

    /// Through bytes: halves may live in different processes.
    public static void exchangeHandshakes(
            SchedulerHalf scheduler, List<? extends WorkerHalf> workers) {
        var handshakes = new ArrayList<Payload>();
        for (var worker : workers) {
            var payload = worker.handshake();
            handshakes.add(
                    payload.isEmpty()
                            ? Payload.EMPTY
                            : new Payload(payload.version(), payload.bytes().clone()));
        }
        scheduler.onHandshakes(handshakes);
    }

    /// What the engine is to act on.
    public static MergedReport settle(SchedulerHalf scheduler, MergedReport report) {
        if (scheduler instanceof SchedulerHalf.Composite composite) {
            return composite.settle(report);
        }
        scheduler.onReport(report);
        return report;
    }
}
