// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import io.kvferry.toolkit.bounded.LastingLoop;

import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantLock;

/// The thread that looks after the accepting threads of a JVM. It ends with the last of them, so
/// that no port leaves it behind.
///
/// Threading: any thread.
final class AcceptWatch {
    static final AcceptWatch OF_THIS_JVM = new AcceptWatch();

    private final ReentrantLock lock = new ReentrantLock();
    private ScheduledThreadPoolExecutor clock = clock();
    private int watched;

    private AcceptWatch() {}

    private static ScheduledThreadPoolExecutor clock() {
        var clock =
                new ScheduledThreadPoolExecutor(
                        1, Thread.ofPlatform().name("kvferry-accept-watch").daemon().factory());
        clock.setRemoveOnCancelPolicy(true);
        return clock;
    }

    /// Has `look` run again and again, with such a pause in between.
    ///
    /// @return ends it, and may be run again
    Runnable every(long nanos, Runnable look) {
        lock.lock();
        try {
            if (clock.isShutdown()) {
                clock = clock();
            }
            var looks =
                    clock.scheduleWithFixedDelay(
                            LastingLoop.repeated(look), nanos, nanos, TimeUnit.NANOSECONDS);
            watched++;
            var over = new AtomicBoolean();
            return () -> {
                looks.cancel(false);
                if (over.compareAndSet(false, true)) {
                    left();
                }
            };
        } finally {
            lock.unlock();
        }
    }

    private void left() {
        lock.lock();
        try {
            watched--;
            if (watched == 0) {
                clock.shutdown();
            }
        } finally {
            lock.unlock();
        }
    }
}
