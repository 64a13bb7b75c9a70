// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.spi.Deadline;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.concurrent.BlockingDeque;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// The lanes for calls of one kind. A caller takes one, fills its memory, has it make the call, and
/// gives it back; with all of them in calls that are overdue, there is none at once.
///
/// Threading: any thread.
final class Lanes {
    /// How often a waiting caller looks whether all calls have become overdue.
    private static final long LOOK_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

    private final int size;

    /// Used last is taken first: what is not needed keeps no memory.
    private final BlockingDeque<Lane> idle;

    private final AtomicInteger overdue = new AtomicInteger();
    private volatile boolean closed;

    Lanes(int size, String name) {
        this.size = size;
        this.idle = new LinkedBlockingDeque<>(size);
        for (int i = 0; i < size; i++) {
            idle.add(new Lane(this, name + "-" + i));
        }
    }

    /// Null when none comes free in time, after [#close], or when the thread is interrupted.
    @Nullable Lane take(Deadline limit) {
        return closed ? null : takeAny(limit);
    }

    private @Nullable Lane takeAny(Deadline limit) {
        Lane lane = idle.poll();
        try {
            while (lane == null && overdue.get() < size && !limit.passed()) {
                lane =
                        idle.poll(
                                Math.min(LOOK_NANOS, limit.remainingNanos()), TimeUnit.NANOSECONDS);
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
        return lane;
    }

    void give(Lane lane) {
        lane.memory().reset();
        idle.addFirst(lane);
    }

    /// A caller does not wait for its call any more.
    void lose() {
        overdue.incrementAndGet();
    }

    /// It had come back after all.
    void found() {
        overdue.decrementAndGet();
    }

    /// An overdue call has returned.
    void recover(Lane lane) {
        overdue.decrementAndGet();
        give(lane);
    }

    /// Calls that nobody waits for any more.
    int overdue() {
        return overdue.get();
    }

    /// Ends the lanes when their calls have.
    ///
    /// @return false when one did not return in time: then the library must stay as it is
    boolean close(Deadline limit) {
        closed = true;
        var all = new ArrayList<Lane>();
        while (all.size() < size) {
            Lane lane = takeAny(limit);
            if (lane == null) {
                return false;
            }
            all.add(lane);
        }
        all.forEach(Lane::close);
        return true;
    }
}
