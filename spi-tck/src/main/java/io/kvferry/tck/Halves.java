// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.wire.Payload;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;

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

    /// Closes worker halves on a thread of its own, as an engine closes one that it has given up.
    public static void closeElsewhere(List<? extends WorkerHalf> workers) {
        var closing = new FutureTask<Void>(() -> workers.forEach(WorkerHalf::close), null);
        var thread = Thread.ofPlatform().name("closes-workers").start(closing);
        try {
            thread.join(); // so that it is not taken for one that the connector left behind
            closing.get();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while worker halves are closed", e);
        } catch (ExecutionException e) {
            if (e.getCause() instanceof RuntimeException own) {
                throw own;
            }
            throw new AssertionError("closing worker halves: " + e.getCause(), e.getCause());
        }
    }
}
