// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/// Completions and statistics of one worker, collected for the next step report. Each transfer is
/// completed once; later completions with the same id, such as the answer to a revocation that
/// crossed the end of the transfer, are dropped.
///
/// Threading: any thread.
public final class Outbox {
    private final ReentrantLock lock = new ReentrantLock();
    private final int rank;
    private final Runnable wake;
    private final Map<TransferId, Boolean> completed = new RecentMap<>(1 << 14);
    private List<Completion> completions = new ArrayList<>();
    private Stats stats = Stats.EMPTY;

    /// @param wake called for each completion
    public Outbox(int rank, Runnable wake) {
        this.rank = rank;
        this.wake = wake;
    }

    public void complete(TransferId id, Completion.Result result) {
        if (add(id, result)) {
            wake.run();
        }
    }

    private boolean add(TransferId id, Completion.Result result) {
        lock.lock();
        try {
            if (completed.containsKey(id)) {
                return false;
            }
            completions.add(new Completion(id, rank, result)); // before it counts as told
            boolean kept = false;
            try {
                completed.put(id, true);
                kept = true;
            } finally {
                if (!kept) {
                    completed.remove(id); // it is there where a larger table could not be had
                    completions.removeLast();
                }
            }
            return true;
        } finally {
            lock.unlock();
        }
    }

    public void count(String name) {
        record(Stats.counter(name, 1));
    }

    public void record(Stats more) {
        lock.lock();
        try {
            stats = stats.merge(more);
        } finally {
            lock.unlock();
        }
    }

    /// Drains everything into one report. If this throws an OutOfMemoryError, it stays for the next
    /// call.
    public StepReport report(long step, Payload payload) {
        lock.lock();
        try {
            var later = new ArrayList<Completion>();
            var told = List.copyOf(completions);
            var report = new StepReport(rank, step, told, payload, stats, List.of());
            completions = later;
            stats = Stats.EMPTY;
            return report;
        } finally {
            lock.unlock();
        }
    }
}
