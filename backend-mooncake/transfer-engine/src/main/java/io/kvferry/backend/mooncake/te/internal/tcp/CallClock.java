// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.spi.Deadline;

import java.time.Duration;

/// How long the system call that a connection is in may still take: until the stall limit, or the
/// deadline of what it belongs to if that is earlier.
///
/// The serving side has no such deadline: a peer that sends or takes a byte now and then would keep
/// the connection, its thread and the memory under its request for ever. There the stall limit
/// counts for each [#LEAST_BYTES] of a request, which is the least rate of a peer.
///
/// Threading: the thread that uses the connection; [#overdue] and [#endNow] from any.
final class CallClock {
    private static final long UNARMED = 0;

    /// Progress of a request without a deadline.
    static final long LEAST_BYTES = 64 << 10;

    private final long stallNanos;
    private volatile long hardLimit = UNARMED;
    private volatile long limit = UNARMED;

    /// Whether the stall limit counts for [#LEAST_BYTES].
    private boolean rated;

    /// Until then there has to be progress again; where there is a least rate.
    private long progressLimit;

    /// Bytes since that was set.
    private long progress;

    CallClock(Duration stall) {
        this.stallNanos = stall.toNanos();
    }

    void begin(Deadline deadline) {
        rated = false;
        hardLimit = armed(deadline.nanoTime());
    }

    /// With the stall limit only, and a least rate.
    void begin() {
        long now = System.nanoTime();
        rated = true;
        progress = 0;
        progressLimit = now + stallNanos;
        hardLimit = armed(now + Long.MAX_VALUE / 2);
    }

    /// Bytes that a call has moved.
    void moved(long bytes) {
        progress += bytes;
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
        long stall = rated ? progressLimit() : System.nanoTime() + stallNanos;
        limit = armed(stall - hardLimit < 0 ? stall : hardLimit);
    }

    private long progressLimit() {
        if (progress >= LEAST_BYTES) {
            progress = 0;
            progressLimit = System.nanoTime() + stallNanos;
        }
        return progressLimit;
    }

    boolean overdue(long now) {
        long seen = limit;
        return seen != UNARMED && seen - now <= 0;
    }

    private static long armed(long nanoTime) {
        return nanoTime == UNARMED ? 1 : nanoTime;
    }
}
