// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// The thread that ends requests whose deadline passed, wherever they are: queued, or hanging in
/// the file system.
final class DeadlineWatch implements Runnable {
    /// How late a deadline may be noticed.
    private static final long TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

    private final IoQueue queue;
    private final StoreCounters counters;
    private volatile boolean stopped;

    DeadlineWatch(IoQueue queue, StoreCounters counters) {
        this.queue = queue;
        this.counters = counters;
    }

    @Override
    public void run() {
        while (!stopped) {
            LockSupport.parkNanos(this, TICK_NANOS);
            if (queue.active() > 0) {
                expire(System.nanoTime());
            }
        }
    }

    private void expire(long now) {
        var requests = queue.all();
        for (int i = 0; i < requests.size(); i++) {
            requests.get(i).expire(now, counters);
        }
    }

    void stop(Thread thread) {
        stopped = true;
        LockSupport.unpark(thread);
    }
}
