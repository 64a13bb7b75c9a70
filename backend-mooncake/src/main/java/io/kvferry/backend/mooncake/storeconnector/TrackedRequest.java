// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.storeconnector.keys.BlockNames;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.LoadAssignment;

import java.time.Duration;
import java.util.Optional;

/// What the scheduler half knows of a request until it is finished.
///
/// Threading: the scheduler thread.
final class TrackedRequest {
    /// How long the answer of a lookup counts.
    private static final Duration FRESH = Duration.ofSeconds(1);

    /// A lookup that was asked for.
    static final class Lookup {
        final int first;
        private final Deadline limit;
        private volatile boolean wanted = true;
        private int blocks = -1;
        private Deadline fresh = Deadline.in(FRESH);

        /// @param first block from which on was looked
        /// @param limit until which the request waits for the answer
        Lookup(int first, Deadline limit) {
            this.first = first;
            this.limit = limit;
        }

        /// Whether a caller still waits for the answer. Any thread.
        boolean isWanted() {
            return wanted;
        }

        boolean isLate() {
            return !isAnswered() && limit.passed();
        }

        /// Abandons the lookup. Without an answer it counts as a miss.
        void giveUp() {
            wanted = false;
            if (!isAnswered()) {
                found(0);
            }
        }

        void found(int count) {
            blocks = count;
            fresh = Deadline.in(FRESH);
        }

        boolean isAnswered() {
            return blocks >= 0;
        }

        /// Whether the answer may have changed by now.
        boolean isOld() {
            return isAnswered() && fresh.passed();
        }

        int blocks() {
            return Math.max(0, blocks);
        }
    }

    final BlockNames names;
    Optional<Lookup> lookup = Optional.empty();
    Optional<LoadAssignment> loading = Optional.empty();

    /// Whether a reset came while it loads: what it has loaded then is stored no more.
    boolean loadCleared;

    boolean loadFailed;

    /// Blocks from the front that are stored, or for which a save is under way.
    int savedBlocks;

    /// Set after a failed save; no further save is attempted before it expires.
    Optional<Deadline> pause = Optional.empty();

    /// Save jobs so far, which number their transfers.
    int jobs;

    TrackedRequest(BlockNames names) {
        this.names = names;
    }

    /// What was found of its blocks holds no more, or is on its way and will not.
    void forgetLookup() {
        lookup.ifPresent(Lookup::giveUp);
        lookup = Optional.empty();
    }
}
