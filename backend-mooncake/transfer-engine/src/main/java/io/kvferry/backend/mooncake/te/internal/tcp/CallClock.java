// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.spi.Deadline;

import java.time.Duration;

/// How long the system call that a connection is in may still take: until the stall limit, or the
/// deadline of what it belongs to if that is earlier.
///
/// Threading: the thread that uses the connection; [#overdue] and [#endNow] from any.
final class CallClock {
    private static final long UNARMED = 0;

    private final long stallNanos;
    private volatile long hardLimit = UNARMED;
    private volatile long limit = UNARMED;

    CallClock(Duration stall) {
        this.stallNanos = stall.toNanos();
    }

    void begin(Deadline deadline) {
        hardLimit = armed(deadline.nanoTime());
    }

    /// With the stall limit only.
    void begin() {
        hardLimit = armed(System.nanoTime() + Long.MAX_VALUE / 2);
    }

    /// Limits all calls from now on together.
    void end(long afterNanos) {
        hardLimit = armed(System.nanoTime() + afterNanos);
    }

    /// Limits all calls from now on together to the stall limit.
    void end() {
        end(stallNanos);
    }

    /// As [#end], and the call in progress too.
    void endNow(long afterNanos) {
        end(afterNanos);
        limit = hardLimit;
    }

    /// No call has a limit any more.
    void rest() {
        hardLimit = UNARMED;
        limit = UNARMED;
    }

    /// Before each call.
    void arm() {
        if (hardLimit == UNARMED) {
            limit = UNARMED;
            return;
        }
        long stall = System.nanoTime() + stallNanos;
        limit = armed(stall - hardLimit < 0 ? stall : hardLimit);
    }

    boolean overdue(long now) {
        long seen = limit;
        return seen != UNARMED && seen - now <= 0;
    }

    private static long armed(long nanoTime) {
        return nanoTime == UNARMED ? 1 : nanoTime;
    }
}
