// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.spi.Deadline;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;

/// How long a connection may make no progress: for the stall limit, and not beyond the deadline of
/// what it belongs to.
///
/// The serving side has no such deadline: a peer that sends or takes a byte now and then would keep
/// the connection, its thread and the memory under its request for ever. There the stall limit
/// counts for each [#LEAST_BYTES] of a request, which is the least rate of a peer.
///
/// The thread that uses the connection does not ask for the time, which costs it as much as a lock:
/// it marks progress, and the watchdog measures how long it sees the same mark. So the stall limit
/// is exceeded by up to two of the watchdog's ticks.
///
/// Threading: the thread that uses the connection; [#end] from any, [#overdue] and [#marks] from
/// the watchdog's.
final class CallClock {
    /// Progress of a request without a deadline.
    static final long LEAST_BYTES = 64 << 10;

    private static final long RESTING = 0;
    private static final long NO_DEADLINE = 1;

    private final long stallNanos;

    /// The deadline, or one of the above.
    private volatile long limit = RESTING;

    /// Whether the stall limit counts for [#LEAST_BYTES], and not for each call.
    private boolean rated;

    /// Bytes since the last mark; where there is a least rate.
    private long moved;

    /// Counts up with progress.
    private final AtomicLong marks = new AtomicLong();

    /// What the watchdog saw last.
    private long marksSeen;

    private long seenSince;

    CallClock(Duration stall) {
        this.stallNanos = stall.toNanos();
    }

    void begin(Deadline deadline) {
        rated = false;
        mark();
        limit = time(deadline.nanoTime());
    }

    /// With the stall limit only, and a least rate.
    void begin() {
        rated = true;
        moved = 0;
        mark();
        if (limit != NO_DEADLINE) {
            limit = NO_DEADLINE;
        }
    }

    /// Bytes that a call has moved.
    void moved(long bytes) {
        moved += bytes;
    }

    /// Limits what is under way and all that follows together.
    void end(long afterNanos) {
        limit = time(System.nanoTime() + afterNanos);
    }

    /// Limits what is under way and all that follows together to the stall limit.
    void end() {
        end(stallNanos);
    }

    /// Nothing has a limit any more.
    void rest() {
        limit = RESTING;
    }

    /// Before each call.
    void arm() {
        if (!rated) {
            mark();
        } else if (moved >= LEAST_BYTES) {
            moved = 0;
            mark();
        }
    }

    private void mark() {
        marks.setOpaque(marks.getPlain() + 1);
    }

    /// Counts up with each beginning, and with progress.
    long marks() {
        return marks.getOpaque();
    }

    boolean overdue(long now) {
        long latest = limit;
        if (latest == RESTING) {
            return false;
        }
        long mark = marks.getOpaque();
        if (mark != marksSeen) {
            marksSeen = mark;
            seenSince = now;
        }
        return now - seenSince >= stallNanos || latest != NO_DEADLINE && latest - now <= 0;
    }

    private static long time(long nanoTime) {
        return nanoTime == RESTING || nanoTime == NO_DEADLINE ? NO_DEADLINE + 1 : nanoTime;
    }
}
