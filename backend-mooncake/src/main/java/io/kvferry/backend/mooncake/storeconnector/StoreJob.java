// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;

/// One transfer of one rank. Its parts (one block of one cache group each) move in batches on one
/// thread. A job can be stopped between two batches, and by an interrupt while the store waits
/// within a batch.
///
/// Threading: any thread; the monitor is never held while bytes move.
final class StoreJob implements Runnable {
    /// Parts of one batch.
    static final int BATCH = 32;

    private enum State {
        QUEUED,
        RUNNING,
        ENDED
    }

    /// Moves parts `from` to `to` of a job and says for each how it went.
    interface Mover {
        void move(StoreJob job, int from, int to, StoreBatch batch);
    }

    private final StorePlan.Move move;
    private final Mover mover;
    private final ThreadLocal<StoreBatch> batches;
    private final Deadline deadline;
    private final Runnable whenEnded;
    private final int most;
    private final int parts;
    private final int[] groups;
    private final int[] indexes;
    private final BitSet done = new BitSet();
    private State state = State.QUEUED;

    /// While it runs.
    private @Nullable Thread thread;

    private boolean interrupted;
    private boolean revoked;
    private long bytes;
    private Optional<Failure> failure = Optional.empty();

    /// @param memory by group; groups of which this rank has no layer have no part
    /// @param whenEnded called once, from any thread, when the job has ended
    StoreJob(
            StorePlan.Move move,
            List<RegionBlocks> memory,
            Mover mover,
            ThreadLocal<StoreBatch> batches,
            Deadline deadline,
            Runnable whenEnded) {
        this(move, memory, mover, batches, deadline, whenEnded, BATCH);
    }

    /// @param most parts that the mover gets at a time
    StoreJob(
            StorePlan.Move move,
            List<RegionBlocks> memory,
            Mover mover,
            ThreadLocal<StoreBatch> batches,
            Deadline deadline,
            Runnable whenEnded,
            int most) {
        this.most = most;
        this.move = move;
        this.mover = mover;
        this.batches = batches;
        this.deadline = deadline;
        this.whenEnded = whenEnded;
        int possible = move.hashes().size() * memory.size();
        this.groups = new int[possible];
        this.indexes = new int[possible];
        int count = 0;
        for (int i = 0; i < move.hashes().size(); i++) {
            for (int group = 0; group < memory.size(); group++) {
                if (move.ids()[group][i] != BlockTable.NO_BLOCK && !memory.get(group).isEmpty()) {
                    groups[count] = group;
                    indexes[count] = i;
                    count++;
                }
            }
        }
        this.parts = count;
    }

    TransferId id() {
        return move.id();
    }

    StorePlan.Move move() {
        return move;
    }

    /// Cache group of a part.
    int group(int part) {
        return groups[part];
    }

    /// Index into the move's blocks.
    int index(int part) {
        return indexes[part];
    }

    /// Block id of a part.
    int block(int part) {
        return move.ids()[groups[part]][indexes[part]];
    }

    @Override
    public void run() {
        synchronized (this) {
            if (state != State.QUEUED) {
                return;
            }
            state = State.RUNNING;
            thread = Thread.currentThread();
        }
        try {
            for (int from = 0; from < parts && !isStopped(); ) {
                int to = from + Math.min(most, parts - from);
                mover.move(this, from, to, batches.get());
                from = to;
            }
        } catch (RuntimeException | Error e) {
            fail(new Failure(ErrorCode.INTERNAL, move.id() + ": " + e));
        } finally {
            end();
        }
    }

    /// Time left for it.
    long remainingNanos() {
        return deadline.remainingNanos();
    }

    /// Whether nothing more of it is to be moved.
    synchronized boolean isStopped() {
        if (failure.isEmpty() && deadline.passed()) {
            failure =
                    Optional.of(
                            new Failure(ErrorCode.TIMEOUT, move.id() + " was not done in time"));
        }
        return revoked || failure.isPresent();
    }

    private void end() {
        synchronized (this) {
            state = State.ENDED;
            thread = null;
            if (interrupted) {
                var _ = Thread.interrupted(); // the next job of this thread is not stopped
            }
        }
        whenEnded.run();
    }

    /// A part is where it belongs.
    synchronized void done(int part, long moved) {
        done.set(part);
        bytes += moved;
    }

    /// Something went wrong: no further batch is tried. The first failure counts.
    synchronized void fail(Failure why) {
        if (failure.isEmpty()) {
            failure = Optional.of(why);
        }
    }

    /// Stops the job. A job that has not started ends immediately.
    void revoke() {
        synchronized (this) {
            revoked = true;
        }
        stop();
    }

    /// As [#revoke], but it ends as failed.
    void abort(Failure why) {
        fail(why);
        stop();
    }

    private void stop() {
        synchronized (this) {
            if (thread != null) {
                interrupted = true;
                thread.interrupt();
            }
            if (state != State.QUEUED) {
                return;
            }
            state = State.ENDED;
        }
        whenEnded.run();
    }

    /// Whether no thread touches a region for this job, now and later.
    synchronized boolean hasEnded() {
        return state == State.ENDED;
    }

    /// The outcome. A failed job lists every part that it did not move, whether tried or not.
    ///
    /// A job counts as completed only if every part is marked as moved: after an OutOfMemoryError
    /// the failure itself may not have been recorded.
    synchronized Completion.Result result() {
        if (revoked) {
            return new Completion.Revoked();
        }
        if (failure.isEmpty() && done.cardinality() == parts) {
            return new Completion.Completed(bytes);
        }
        Failure why =
                failure.orElseGet(
                        () -> new Failure(ErrorCode.INTERNAL, move.id() + " stopped half-way"));
        return new Completion.Failed(why, missing());
    }

    private List<Completion.FailedBlocks> missing() {
        var byGroup = new ArrayList<Completion.FailedBlocks>();
        for (int group = 0; group < move.ids().length; group++) {
            var positions = new BitSet();
            for (int part = 0; part < parts; part++) {
                if (groups[part] == group && !done.get(part)) {
                    positions.set(move.first() + indexes[part]);
                }
            }
            if (!positions.isEmpty()) {
                byGroup.add(new Completion.FailedBlocks(group, positions.stream().toArray()));
            }
        }
        return byGroup;
    }
}
