// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.bounded.Uninterrupted;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// Counts the users of something that can be taken away: users [#enter] and [#exit], the owner
/// closes it once and waits until the last user is out. Entering costs one compare-and-set.
public final class UseGate {
    private static final int CLOSED = Integer.MIN_VALUE;

    private final AtomicInteger state = new AtomicInteger();
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition idle = lock.newCondition();

    public boolean enter() {
        while (true) {
            int seen = state.get();
            if (seen < 0) {
                return false;
            }
            if (state.compareAndSet(seen, seen + 1)) {
                return true;
            }
        }
    }

    public void exit() {
        if (state.decrementAndGet() == CLOSED) {
            lock.lock();
            try {
                idle.signalAll();
            } finally {
                lock.unlock();
            }
        }
    }

    /// False when it was closed before.
    public boolean close() {
        return (state.getAndUpdate(seen -> seen | CLOSED) & CLOSED) == 0;
    }

    /// As [#close], but only if the gate is empty; otherwise returns false.
    public boolean closeIfIdle() {
        return state.compareAndSet(0, CLOSED);
    }

    public boolean isClosed() {
        return state.get() < 0;
    }

    /// Whether it was closed and the last user has left.
    public boolean isOver() {
        return state.get() == CLOSED;
    }

    /// After [#close]: whether the last user left in time.
    public boolean awaitIdle(Deadline deadline) {
        return Uninterrupted.await(this::awaitIdle, deadline);
    }

    private boolean awaitIdle(long nanos) throws InterruptedException {
        lock.lock();
        try {
            long left = nanos;
            while (state.get() != CLOSED) {
                if (left <= 0) {
                    return false;
                }
                left = idle.awaitNanos(left);
            }
            return true;
        } finally {
            lock.unlock();
        }
    }
}
