// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.store.BlockCallback;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.Completion.FailedBlocks;
import io.kvferry.spi.kv.TransferId;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/// One transfer on one rank: a list of files, submitted to the store as its queue accepts them.
///
/// Threading: created on the step thread; fed by the step thread and I/O threads. Every method
/// takes the job's monitor, which is never held during I/O.
final class DiskJob implements BlockCallback {
    private static final Failure NOT_STARTED =
            new Failure(ErrorCode.INTERNAL, "the transfer could not be handed on to the store");

    /// Used when creating a failure from an exception throws, most likely for lack of memory.
    private static final Failure NO_MEMORY =
            new Failure(ErrorCode.NO_MEMORY, "no memory to hand a file on to the store");

    private final DiskPlan.Move move;
    private final boolean load;
    private final BlockStore store;
    private final Deadline deadline;
    private final Runnable whenRoom;
    private final Runnable whenEnded;
    private final List<JobFile> files;
    private final long begun = System.nanoTime();

    /// Full size from the start, because failures must be recorded even when the heap is full.
    private final BitSet failed;

    private int next;
    private int inFlight;
    private boolean revoked;
    private boolean notStarted;

    /// The reason for [#abort]; null until then.
    private @Nullable Failure aborted;

    private long bytes;

    /// What the job failed for; null while no file has failed.
    private @Nullable Failure failure;

    /// @param whenRoom called from I/O threads when the store's queue has room again
    /// @param whenEnded called from any thread, possibly more than once, when the job has ended
    DiskJob(
            DiskPlan.Move move,
            boolean load,
            List<RegionMemory> memory,
            BlockStore store,
            int rank,
            Deadline deadline,
            Runnable whenRoom,
            Runnable whenEnded) {
        this.move = move;
        this.load = load;
        this.store = store;
        this.deadline = deadline;
        this.whenRoom = whenRoom;
        this.whenEnded = whenEnded;
        this.files = JobFile.of(move, memory, rank);
        this.failed = new BitSet(files.size());
    }

    TransferId id() {
        return move.id();
    }

    List<JobFile> files() {
        return files;
    }

    /// Submits files until the store's queue is full; returns true when none are left to submit.
    boolean feed() {
        while (true) {
            int item;
            synchronized (this) {
                if (next >= files.size() || revoked) {
                    break;
                }
                if (deadline.passed()) {
                    failRest(new Failure(ErrorCode.TIMEOUT, move.id() + " was not done in time"));
                    break;
                }
                item = next++;
                inFlight++;
            }
            if (!offer(item)) {
                synchronized (this) {
                    refused(item);
                }
                signal(); // it may have been revoked meanwhile
                return false;
            }
        }
        signal();
        return true;
    }

    /// The store's queue is full, so the file is submitted again later, unless the job was aborted
    /// meanwhile.
    private void refused(int item) {
        inFlight--;
        if (aborted != null) {
            fail(item, aborted);
        } else if (!notStarted) {
            next = item;
        }
        notifyAll();
    }

    private void signal() {
        if (ended()) {
            whenEnded.run();
        }
    }

    private boolean offer(int item) {
        JobFile file = files.get(item);
        try {
            return load
                    ? store.load(file.key(), file.segments(), deadline, this, item)
                    : store.save(file.key(), file.segments(), deadline, this, item);
        } catch (RuntimeException
                | Error e) { // such as a file larger than the store was opened for
            failed(item, e);
            return true; // the feeding loop goes on; do not restart it here
        }
    }

    @Override
    public void completed(long tag, BlockResult result) {
        try {
            if (load && result.failedWith(ErrorCode.TIMEOUT)) {
                // Suppress here too: the scheduler half may be in another process.
                store.suppress(files.get((int) tag).key(), begun);
            }
        } finally { // also when the catalog cannot grow
            end((int) tag, result);
            signal();
            whenRoom.run();
        }
    }

    /// The store rejected the file by throwing.
    private void failed(int item, Throwable why) {
        Failure told = NO_MEMORY;
        try {
            told = Failure.of(why);
        } catch (RuntimeException | Error _) {
            // no memory for the words
        }
        synchronized (this) {
            fail(item, told);
            inFlight--;
            notifyAll();
        }
    }

    /// Must not allocate: if it threw, the job would count as complete or never end.
    private synchronized void end(int item, BlockResult result) {
        if (result instanceof BlockResult.Failed failedResult) {
            fail(item, failedResult.failure());
        } else {
            bytes += files.get(item).bytes();
        }
        inFlight--;
        notifyAll();
    }

    /// Any other failure replaces a MISS. After a MISS the next lookup asks the file system, and
    /// would offer an existing but unreadable file again.
    private void fail(int item, Failure why) {
        if (failure == null || failure.code() == ErrorCode.MISS) {
            failure = why;
        }
        failed.set(item);
    }

    private void failRest(Failure why) {
        for (; next < files.size(); next++) {
            fail(next, why);
        }
    }

    void revoke() {
        synchronized (this) {
            revoked = true;
            notifyAll();
        }
        signal();
    }

    /// Fails the job for all blocks, whatever the outcome of files already submitted. Must not
    /// allocate: the heap may be full.
    void failStart() {
        synchronized (this) {
            notStarted = true;
            next = files.size();
            notifyAll();
        }
        signal();
    }

    /// Fails all files that were not submitted yet.
    void abort(Failure why) {
        synchronized (this) {
            aborted = why;
            failRest(why);
            notifyAll();
        }
        signal();
    }

    /// Whether no thread touches, or will touch, a region for this job.
    synchronized boolean ended() {
        return inFlight == 0 && (revoked || next >= files.size());
    }

    /// Waits until the job has ended; false when the limit came first.
    synchronized boolean awaitEnd(Deadline limit) {
        try {
            while (!ended()) {
                long left = limit.remainingNanos();
                if (left <= 0) {
                    return false;
                }
                TimeUnit.NANOSECONDS.timedWait(this, Math.max(left, 1_000_000));
            }
            return true;
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    synchronized Completion.Result result() {
        if (revoked) {
            return new Completion.Revoked();
        }
        if (notStarted) { // names no block, which stands for all
            return new Completion.Failed(NOT_STARTED, List.of());
        }
        return failure == null
                ? new Completion.Completed(bytes)
                : new Completion.Failed(failure, failedBlocks());
    }

    /// Every block in a file that failed.
    private List<FailedBlocks> failedBlocks() {
        var byGroup = new TreeMap<Integer, List<JobFile>>();
        failed.stream()
                .mapToObj(files::get)
                .forEach(file ->
                        byGroup.computeIfAbsent(file.group(), _ -> new ArrayList<>()).add(file));
        var blocks = new ArrayList<FailedBlocks>();
        byGroup.forEach((group, lost) ->
                blocks.add(
                        new FailedBlocks(
                                group,
                                lost.stream()
                                        .flatMapToInt(file -> Arrays.stream(file.positions()))
                                        .toArray())));
        return blocks;
    }
}
