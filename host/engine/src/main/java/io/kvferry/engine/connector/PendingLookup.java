// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.connector;

import java.time.Duration;

/// A lookup that the connector cannot answer yet: it is repeated after the time that the connector
/// names, until the engine's limit has passed.
///
/// Threading: scheduler thread only.
public final class PendingLookup {
    /// Both 0 while it is not pending.
    private long since;

    private long retryAt;

    /// Whether it is too early to look up again.
    public boolean isEarly(long now) {
        return retryAt != 0 && now - retryAt < 0;
    }

    public boolean isPending() {
        return since != 0;
    }

    /// Nanoseconds until it may be repeated; [Long#MAX_VALUE] when it is not pending.
    public long untilRetry(long now) {
        return retryAt == 0 ? Long.MAX_VALUE : Math.max(0, retryAt - now);
    }

    /// The connector answered that it does not know yet.
    ///
    /// @param limit how long the lookup may be pending
    /// @return false when that has passed
    boolean repeat(Duration retryAfter, Duration limit, long now) {
        if (since == 0) {
            since = now | 1;
        }
        long left = since + limit.toNanos() - now;
        if (left <= 0) {
            clear();
            return false;
        }
        retryAt = now + nanos(retryAfter, left) | 1;
        return true;
    }

    /// The lookup has been answered, or starts over.
    public void clear() {
        since = 0;
        retryAt = 0;
    }

    /// A plugin's duration in nanoseconds, at most `most`: it may be longer than a long can tell.
    private static long nanos(Duration duration, long most) {
        return duration.compareTo(Duration.ofNanos(most)) >= 0 ? most : duration.toNanos();
    }
}
