// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/// The clock of a store: nanoseconds since it was opened, so that times compare as numbers. A clock
/// of the wall would let a correction of its time end or prolong every lease.
public final class StoreTime {
    private static final long LONGEST_NANOS = TimeUnit.DAYS.toNanos(36_500);

    private final LongSupplier clock;
    private final long start;

    /// @param clock monotonic nanoseconds from any origin, such as [System#nanoTime]
    public StoreTime(LongSupplier clock) {
        this.clock = clock;
        this.start = clock.getAsLong();
    }

    public long now() {
        return clock.getAsLong() - start;
    }

    public static long nanos(Duration duration) {
        return duration.compareTo(Duration.ofDays(36_500)) > 0 ? LONGEST_NANOS : duration.toNanos();
    }
}
