// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.RequestView;

import java.time.Duration;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.TimeUnit;

/// Counts how many blocks of a prompt are stored. Answers from the catalog if option `verify_after`
/// permits it, otherwise an I/O thread asks the file system.
final class DiskLookups {
    /// The answer is not known yet.
    static final int PENDING = -1;

    /// How long lookups miss after the file system did not answer one.
    private static final long SUSPENSION_NANOS = TimeUnit.SECONDS.toNanos(5);

    private final BlockStore store;
    private final RunIndex index;
    private final Duration limit;
    private final long waitNanos;
    private final boolean asksCatalog;
    private long suspendedUntil = System.nanoTime();
    private final LookupWatch watch = new LookupWatch(System::nanoTime);
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
        Optional<PrefixProbe> own = under(tracked, first, end);
        if (own.filter(probe -> !probe.isPending()).isEmpty() && isSuspended()) {
            tracked.probe = Optional.empty();
            return 0;
        }
        if (own.isEmpty()) {
            own = begin(tracked, tracked.search(request, first, end, index));
        }
        if (own.isEmpty()) {
            return PENDING;
        }
        PrefixProbe probe = own.get();
        // Wait only for the next probe to be answered: waiting for the others would delay the step.
        if (!probe.await(watch.isNext(probe) ? waitNanos : 0)) {
            return PENDING;
        }
        tracked.probe = Optional.empty();
        OptionalInt located = probe.located();
        if (located.isEmpty()) {
            suspend();
            return 0;
        }
        found(tracked, probe.search());
        return located.getAsInt();
    }

    /// Whether lookups miss immediately, because the file system failed recently or does not
    /// answer.
    private boolean isSuspended() {
        if (suspendedUntil - System.nanoTime() > 0) {
            return true;
        }
        boolean silent = watch.isSilent();
        if (silent) {
            suspend();
        }
        return silent;
    }

    private void suspend() {
        watch.reset();
        suspendedUntil = System.nanoTime() + SUSPENSION_NANOS;
        failures++;
    }

    private void found(Tracked tracked, PrefixSearch search) {
        tracked.runs = search.runs();
        search.wholeRuns().forEach(index::add);
    }

    /// Looks up a prompt that will not be loaded, once: keeps its blocks recently used, and detects
    /// deleted ones, which are then saved again.
    void refresh(Tracked tracked, RequestView request, int end) {
        if (end > 0 && !tracked.refreshed) {
            tracked.refreshed = ask(new PrefixProbe(tracked.search(request, end, end, index)));
        }
    }

    /// The probe under way for just these blocks.
    private static Optional<PrefixProbe> under(Tracked tracked, int first, int end) {
        return tracked.probe.filter(
                probe -> probe.search().first() == first && probe.search().end() == end);
    }

    /// A new probe; empty where the store takes none now, and the next lookup tries again.
    private Optional<PrefixProbe> begin(Tracked tracked, PrefixSearch search) {
        var probe = new PrefixProbe(search);
        if (!ask(probe)) {
            return Optional.empty();
        }
        tracked.probe = Optional.of(probe);
        return tracked.probe;
    }

    private boolean ask(PrefixProbe probe) {
        boolean taken = store.locate(probe.search(), Deadline.in(limit), probe, 0);
        if (taken) {
            watch.asked(probe);
        } else if (watch.refused()) {
            suspend();
        }
        return taken;
    }

    /// Lookups that the file system failed or did not answer, since the last call.
    int drainFailures() {
        int drained = failures;
        failures = 0;
        return drained;
    }
}
