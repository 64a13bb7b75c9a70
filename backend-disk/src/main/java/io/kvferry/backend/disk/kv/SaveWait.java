// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.observe.Stats;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// Lets a step wait for the saves it started, so that a prefill engine responds only when another
/// engine can find its blocks. Saves that are not done in time continue under their leases.
///
/// Threading: the step thread.
final class SaveWait {
    /// How long steps do not wait after saves did not end in time, so that a hanging file system
    /// delays one step instead of every step.
    private static final long SUSPENSION_NANOS = TimeUnit.SECONDS.toNanos(5);

    private final Duration most;
    private long suspendedUntil = System.nanoTime();
    private int timeouts;

    /// @param most zero: steps do not wait
    SaveWait(Duration most) {
        this.most = most;
    }

    void await(List<DiskJob> saves, Deadline stepLimit) {
        if (most.isZero() || saves.isEmpty() || suspendedUntil - System.nanoTime() > 0) {
            return;
        }
        Deadline limit = Deadline.in(most).earlier(stepLimit);
        for (DiskJob save : saves) {
            if (!save.awaitEnd(limit)) {
                timeouts++;
                suspendedUntil = System.nanoTime() + SUSPENSION_NANOS;
                return;
            }
        }
    }

    /// Steps whose saves did not end since the last call.
    Stats drainStats() {
        int drained = timeouts;
        timeouts = 0;
        return drained == 0 ? Stats.EMPTY : Stats.counter("disk_save_wait_timeouts", drained);
    }
}
