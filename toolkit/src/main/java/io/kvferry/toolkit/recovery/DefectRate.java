// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.Optional;

/// Counts the defects of a scheduler half: so many within so long mean that it does not work. Each
/// of them costs a warning, and some a request its hit.
///
/// Threading: scheduler thread only.
public final class DefectRate {
    private static final int MOST = 20;
    private static final long WITHIN_NANOS = Duration.ofSeconds(10).toNanos();

    private int count;
    private long since;
    private @Nullable Failure tooMany;

    /// One more.
    public void add(String what) {
        long now = System.nanoTime();
        if (count == 0 || now - since > WITHIN_NANOS) {
            count = 0;
            since = now;
        }
        if (++count > MOST) {
            count = 0;
            tooMany = new Failure(ErrorCode.INTERNAL, "too many defects, the last one: " + what);
        }
    }

    /// A defect after which the half cannot go on, however few there were. Needs no memory.
    public void giveUp(Failure why) {
        tooMany = why;
    }

    /// Why the half should be given up, once.
    public Optional<Failure> takeTooMany() {
        var taken = tooMany;
        tooMany = null;
        return Optional.ofNullable(taken);
    }

    /// Another half takes over.
    public void reset() {
        count = 0;
        tooMany = null;
    }
}
