// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.RequestView;

import java.time.Duration;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.TimeUnit;

/// How many blocks of a prompt are there: by the catalog where option `verify_after` lets it answer
/// alone, else by the file system, which an I/O thread asks.
final class DiskLookups {
    /// The answer is not known yet.
    static final int PENDING = -1;

    /// How long lookups miss after one that the file system did not answer.
    private static final long SUSPENSION_NANOS = TimeUnit.SECONDS.toNanos(5);

    private final BlockStore store;
    private final RunIndex index;
    private final Duration limit;
    private final long waitNanos;
    private final boolean asksCatalog;
    private long suspendedUntil = System.nanoTime();
    private int failures;

    /// @param limit after which the file system has not answered
    /// @param wait how long one lookup waits for an answer
    DiskLookups(BlockStore store, RunIndex index, Duration limit, Duration wait) {
        this.store = store;
        this.index = index;
        this.limit = limit;
        this.waitNanos = wait.toNanos();
        this.asksCatalog = store.config().times().verifyAfter().isPositive();
    }

    /// Blocks from `first` to `end` (exclusive) that are there from the front, or [#PENDING].
    int present(Tracked tracked, RequestView request, int first, int end) {
        if (asksCatalog) {
            var search = tracked.search(request, first, end, index);
            if (store.known(search) == end - first) {
                store.touch(tracked.storedFiles(request, end, store));
                found(tracked, search);
                return end - first;
            }
        }
        if (suspendedUntil - System.nanoTime() > 0) {
            return 0;
        }
        PrefixProbe probe = probe(tracked, request, first, end);
        if (!probe.await(waitNanos)) {
            return PENDING;
        }
        tracked.probe = Optional.empty();
        OptionalInt located = probe.located();
        if (located.isEmpty()) {
            suspendedUntil = System.nanoTime() + SUSPENSION_NANOS;
            failures++;
            return 0;
        }
        found(tracked, probe.search());
        return located.getAsInt();
    }

    private void found(Tracked tracked, PrefixSearch search) {
        tracked.runs = search.runs();
        search.wholeRuns().forEach(index::add);
    }

    /// Asks the file system once about a prompt that is not going to be loaded, so that its blocks
    /// stay in use, and those that are gone are saved again.
    void refresh(Tracked tracked, RequestView request, int end) {
        if (end > 0 && !tracked.refreshed) {
            tracked.refreshed =
                    store.locate(
                            tracked.search(request, end, end, index),
                            Deadline.in(limit),
                            (_, _) -> {},
                            0);
        }
    }

    /// The probe under way for just these blocks, or a new one.
    private PrefixProbe probe(Tracked tracked, RequestView request, int first, int end) {
        if (tracked.probe.isPresent()
                && tracked.probe.get().search().first() == first
                && tracked.probe.get().search().end() == end) {
            return tracked.probe.get();
        }
        var probe = new PrefixProbe(tracked.search(request, first, end, index));
        if (store.locate(probe.search(), Deadline.in(limit), probe, 0)) {
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
