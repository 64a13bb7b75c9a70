// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import java.time.Duration;

/// Bounded waits that an interrupt does not end; the thread is interrupted afterwards.
final class Uninterrupted {
    /// Waits so many nanoseconds at most; false when they were not enough.
    @FunctionalInterface
    interface Wait {
        boolean await(long nanos) throws InterruptedException;
    }

    private Uninterrupted() {}

    static boolean await(Wait wait, Duration most) {
        long end = System.nanoTime() + most.toNanos();
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    return wait.await(Math.max(0, end - System.nanoTime()));
                } catch (InterruptedException _) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    static boolean join(Thread thread, Duration most) {
        return await(nanos -> thread.join(Duration.ofNanos(nanos)), most);
    }
}
