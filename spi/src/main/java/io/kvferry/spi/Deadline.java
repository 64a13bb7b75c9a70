// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/// A point on this process's monotonic clock after which a wait ends.
///
/// A deadline never crosses a process: send [#remaining] and start anew on the other side.
public record Deadline(long nanoTime) {
    /// The deadline `limit` from now; a limit beyond 100 years is cut to that, so that arithmetic
    /// cannot overflow.
    public static Deadline in(Duration limit) {
        long nanos =
                limit.compareTo(Duration.ofDays(36_500)) > 0
                        ? TimeUnit.DAYS.toNanos(36_500)
                        : limit.toNanos();
        return new Deadline(System.nanoTime() + nanos);
    }

    /// Nanoseconds left; zero or less when it has passed.
    public long remainingNanos() {
        return nanoTime - System.nanoTime();
    }

    /// Time left, never negative.
    public Duration remaining() {
        return Duration.ofNanos(Math.max(0, remainingNanos()));
    }

    public boolean passed() {
        return remainingNanos() <= 0;
    }

    /// The earlier of the two.
    public Deadline earlier(Deadline other) {
        return nanoTime - other.nanoTime <= 0 ? this : other;
    }
}
