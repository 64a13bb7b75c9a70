// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// The thread that ends tasks whose deadline has passed, whether they are queued or hang in a
/// system call.
public final class DeadlineWatch implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger(DeadlineWatch.class);

    /// How late a deadline may be noticed.
    private static final long TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

    private final IoPool<?> pool;
    private volatile boolean stopped;

    public DeadlineWatch(IoPool<?> pool) {
        this.pool = pool;
    }

    @Override
    public void run() {
        while (!stopped) {
            LockSupport.parkNanos(this, TICK_NANOS);
            Thread.interrupted(); // left by a callback: parking would no longer wait
            try {
                pool.expire(System.nanoTime());
            } catch (RuntimeException | Error e) { // a callback's defect must not end the deadlines
                LoopReport.WARN.log(LOG, "a callback threw when its deadline passed", e);
            }
        }
    }

    /// Ends the loop, which runs on `thread`.
    public void stop(Thread thread) {
        stopped = true;
        LockSupport.unpark(thread);
    }
}
