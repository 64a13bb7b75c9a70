// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongConsumer;

/// The loop of a thread that has no successor: whatever it throws, it is run again after a pause,
/// until it returns. Handlers within the loop report what failed; this catches what they throw
/// themselves where the heap is full, and needs no memory for it.
///
/// Threading: made by who starts the thread, run by that.
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

    /// A task to be repeated by an executor, which drops for good what throws once.
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

    /// A thread that is interrupted does not park: without a pause it would take a processor as
    /// long as the loop throws. An interrupt that comes now ends this pause, but not the next.
    private void pause() {
        boolean interrupted = Thread.interrupted();
        park.accept(PAUSE_NANOS);
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
