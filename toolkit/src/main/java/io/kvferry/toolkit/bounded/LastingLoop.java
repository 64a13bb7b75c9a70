// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongConsumer;

/// The main loop of a thread that must not die: if the loop throws, it is restarted after a pause,
/// until it returns normally. Handlers inside the loop report errors; this class catches what they
/// throw themselves when the heap is full, and does not allocate.
///
/// Threading: created by the thread that starts the loop's thread, run by the latter.
public final class LastingLoop implements Runnable {
    static final long PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(10);

    private final Runnable loop;
    private final LongConsumer park;

    public LastingLoop(Runnable loop) {
        this(loop, LockSupport::parkNanos);
    }

    /// @param park for so many nanoseconds at most; an interrupt ends it, as it does parkNanos
    LastingLoop(Runnable loop, LongConsumer park) {
        this.loop = loop;
        this.park = park;
        LoopReport.load();
    }

    /// Wraps a task for a scheduled executor, which would drop a task that throws once.
    public static Runnable repeated(Runnable task) {
        LoopReport.load();
        return () -> {
            try {
                task.run();
            } catch (RuntimeException | Error _) {
                Thread.onSpinWait(); // the next time comes all the same
            }
        };
    }

    @Override
    public void run() {
        while (true) {
            try {
                loop.run();
                return;
            } catch (RuntimeException | Error _) {
                pause();
            }
        }
    }

    /// Parks with the interrupt cleared and restores it afterwards: an interrupted thread does not
    /// park and would occupy a CPU while the loop keeps throwing. An interrupt during the pause
    /// ends this pause, but not the next.
    private void pause() {
        boolean interrupted = Thread.interrupted();
        park.accept(PAUSE_NANOS);
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
