// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.OptionalLong;
import java.util.function.LongSupplier;

/// Detects a file system that does not answer lookups. Needed because an engine stops asking before
/// the store's own timeout, so the failure itself is never seen.
///
/// Threading: the scheduler's thread.
final class LookupWatch {
    /// Time without any answer after which lookups miss.
    static final Duration MOST_SILENT = Duration.ofSeconds(2);

    /// Refusals further apart than this are not counted as continuous.
    private static final Duration APART = Duration.ofSeconds(10);

    private final LongSupplier clock;

    /// Those that the store has taken, in the order in which it answers them.
    private final ArrayDeque<PrefixProbe> asked = new ArrayDeque<>();

    /// When the last answer was seen, or the first of these lookups began.
    private long progress;

    private OptionalLong refusedSince = OptionalLong.empty();
    private long lastRefused;

    /// @param clock of nanoseconds
    LookupWatch(LongSupplier clock) {
        this.clock = clock;
    }

    /// The store has taken a lookup.
    void asked(PrefixProbe probe) {
        dropAnswered();
        if (asked.isEmpty()) {
            progress = clock.getAsLong();
        }
        asked.addLast(probe);
        refusedSince = OptionalLong.empty();
    }

    /// The store refused a lookup because its queue is full; returns whether that has lasted too
    /// long.
    boolean refused() {
        long now = clock.getAsLong();
        if (refusedSince.isEmpty() || now - lastRefused > APART.toNanos()) {
            refusedSince = OptionalLong.of(now);
        }
        lastRefused = now;
        return now - refusedSince.getAsLong() > MOST_SILENT.toNanos();
    }

    /// Whether this lookup is answered next.
    boolean isNext(PrefixProbe probe) {
        dropAnswered();
        return asked.peekFirst() == probe;
    }

    /// Whether there was no answer for too long.
    boolean isSilent() {
        dropAnswered();
        return !asked.isEmpty() && clock.getAsLong() - progress > MOST_SILENT.toNanos();
    }

    /// Forgets pending lookups; measurement restarts with the next one.
    void reset() {
        asked.clear();
        refusedSince = OptionalLong.empty();
    }

    private void dropAnswered() {
        while (!asked.isEmpty() && !asked.peekFirst().isPending()) {
            asked.removeFirst();
            progress = clock.getAsLong();
        }
    }
}
