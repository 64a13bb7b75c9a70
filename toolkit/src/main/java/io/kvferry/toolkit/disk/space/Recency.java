// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import java.time.InstantSource;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;

/// When a file was used, as one number that sorts: milliseconds since the epoch, and below them how
/// close the file is to the start of its prefix. When files are used together, the one deepest in
/// the prefix sorts first and is evicted first, so that what stays is a prefix that can be used.
///
/// Files carry the number as their modification time, so that it outlives the process and is seen
/// by others. It is written at most once per interval: the time is rounded up to the end of the
/// interval, and a file whose time is there already needs no new one. Rounding up keeps the order
/// between a file whose time was written early in the interval and a file deeper in the same prefix
/// that was written late in it.
///
/// Between files of different prefixes the order is that of use within one process, and that of
/// intervals between processes.
///
/// The time follows the system clock but never goes backwards while the process runs. Otherwise,
/// after the clock was set back by a day, files used since would be evicted first for a day. After
/// such a change the time stays ahead of the clock.
///
/// Threading: any thread.
public final class Recency {
    private static final long MILLI = TimeUnit.MILLISECONDS.toNanos(1);
    private static final long DEEPEST = MILLI - 1;

    private final long intervalMillis;
    private final InstantSource clock;
    private final LongSupplier nanoTime;

    /// How far the clock is ahead of `nanoTime`, at most so far.
    private final AtomicLong ahead = new AtomicLong(Long.MIN_VALUE);

    /// @param intervalMillis time within which one file is written to at most once, 1 or more
    public Recency(long intervalMillis) {
        this(intervalMillis, InstantSource.system(), System::nanoTime);
    }

    /// @param nanoTime as [System#nanoTime]
    public Recency(long intervalMillis, InstantSource clock, LongSupplier nanoTime) {
        this.intervalMillis = Math.max(1, intervalMillis);
        this.clock = clock;
        this.nanoTime = nanoTime;
    }

    /// Milliseconds since the epoch, never less than before.
    public long nowMillis() {
        long elapsed = Math.floorDiv(nanoTime.getAsLong(), MILLI);
        long now = clock.millis() - elapsed;
        long most = ahead.get();
        while (now > most && !ahead.compareAndSet(most, now)) {
            most = ahead.get();
        }
        return elapsed + Math.max(now, most);
    }

    /// The time of a use, now, of the file at place `depth` of its prefix.
    public long stampNow(int depth) {
        return stamp(nowMillis(), depth);
    }

    /// The time of a use of the file at place `depth` of its prefix, in nanoseconds since the
    /// epoch.
    public static long stamp(long nowMillis, int depth) {
        return nowMillis * MILLI + DEEPEST - Math.clamp(depth, 0L, DEEPEST);
    }

    /// The time to write to a file last used at `stamp`.
    public long persistent(long stamp) {
        long millis = Math.floorDiv(stamp, MILLI);
        long end = (Math.floorDiv(millis, intervalMillis) + 1) * intervalMillis;
        return end * MILLI + Math.floorMod(stamp, MILLI);
    }

    /// What a file says of its use, for comparison with uses of this process: the time at which it
    /// is learned, where the file's time is the end of an interval that is not over, or comes from
    /// a clock that is ahead.
    public static long learned(long persistent, long nowMillis) {
        long latest = nowMillis * MILLI + Math.floorMod(persistent, MILLI);
        return Math.min(persistent, latest);
    }
}
