// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.wire.Payload;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.locks.LockSupport;

/// What an engine does with the halves of connectors of every family.
public final class Halves {
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(60);

    private Halves() {}

    /// Delivers the handshakes as copied bytes, because halves may live in different processes.
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

    /// Passes a report to the scheduler half and returns what the engine must act on.
    public static MergedReport settle(SchedulerHalf scheduler, MergedReport report) {
        if (scheduler instanceof SchedulerHalf.Composite composite) {
            return composite.settle(report);
        }
        scheduler.onReport(report);
        return report;
    }

    /// Closes worker halves as an engine does after giving them up: on a separate thread, and
    /// repeatedly while a half reports that its threads may still touch the engine's memory.
    public static void closeElsewhere(List<? extends WorkerHalf> workers) {
        var closing = new FutureTask<Void>(() -> workers.forEach(Halves::closeWhole), null);
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

    private static void closeWhole(WorkerHalf half) {
        var limit = Deadline.in(CLOSE_LIMIT);
        while (!isClosed(half)) {
            if (limit.passed()) {
                throw new AssertionError("a worker half is not closed within " + CLOSE_LIMIT);
            }
            LockSupport.parkNanos(1_000_000);
        }
    }

    /// Asks a half to be closed.
    ///
    /// @return false when it says that its threads may still touch the engine's memory
    public static boolean isClosed(WorkerHalf half) {
        try {
            half.close();
            return true;
        } catch (KvFerryException e) {
            if (e.code() != ErrorCode.TIMEOUT) {
                throw e;
            }
            return false;
        }
    }
}
