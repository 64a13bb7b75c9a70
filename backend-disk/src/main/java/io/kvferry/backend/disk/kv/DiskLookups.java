// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockKey;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.spi.Deadline;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.TimeUnit;

/// How many files are there, asked of the index first and of the file system only where that is not
/// sure, and never on the scheduler's own thread.
final class DiskLookups {
    /// The answer is not known yet.
    static final int PENDING = -1;

    /// How long lookups miss after one that the file system did not answer.
    private static final long SUSPENSION_NANOS = TimeUnit.SECONDS.toNanos(5);

    private final BlockStore store;
    private final Duration limit;
    private final long waitNanos;
    private long suspendedUntil = System.nanoTime();
    private int failures;

    /// @param limit after which the file system has not answered
    /// @param wait how long one lookup waits for an answer
    DiskLookups(BlockStore store, Duration limit, Duration wait) {
        this.store = store;
        this.limit = limit;
        this.waitNanos = wait.toNanos();
    }

    /// Files that are there from the front, or [#PENDING].
    ///
    /// @param keys all files of the request from its first block on
    /// @param from index of the first that is asked for
    int present(Tracked tracked, List<BlockKey> keys, int from) {
        if (store.knownPrefix(keys) == keys.size()) {
            store.touch(List.copyOf(keys));
            return keys.size() - from;
        }
        if (suspendedUntil - System.nanoTime() > 0) {
            return 0;
        }
        PrefixProbe probe = probe(tracked, keys, from);
        if (!probe.await(waitNanos)) {
            return PENDING;
        }
        tracked.probe = Optional.empty();
        OptionalInt located = probe.located();
        if (located.isEmpty()) {
            suspendedUntil = System.nanoTime() + SUSPENSION_NANOS;
            failures++;
        }
        return located.orElse(0);
    }

    /// The probe under way for just these keys, or a new one.
    private PrefixProbe probe(Tracked tracked, List<BlockKey> keys, int from) {
        if (tracked.probe.isPresent()
                && tracked.probe.get().keys.size() == keys.size()
                && tracked.probe.get().from == from) {
            return tracked.probe.get();
        }
        var probe = new PrefixProbe(List.copyOf(keys), from);
        if (store.locate(probe.keys, from, Deadline.in(limit), probe, 0)) {
            tracked.probe = Optional.of(probe);
        }
        return probe; // refused: it stays pending and the next lookup tries again
    }

    /// Lookups that the file system failed or did not answer, since the last call.
    int drainFailures() {
        int drained = failures;
        failures = 0;
        return drained;
    }
}
