// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockCallback;
import io.kvferry.backend.disk.store.BlockKey;
import io.kvferry.backend.disk.store.BlockResult;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.Completion.FailedBlocks;
import io.kvferry.spi.kv.TransferId;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;

/// One transfer of one rank: so many files, handed to the store as it takes them.
///
/// Threading: made on the step thread; fed by it and by I/O threads; every method takes the job's
/// own monitor, which is held for memory work only.
final class DiskJob implements BlockCallback {
    private final DiskPlan.Move move;
    private final boolean load;
    private final List<RegionMemory> memory;
    private final BlockStore store;
    private final Deadline deadline;
    private final Runnable whenRoom;
    private final BlockKey[] keys;
    private final List<List<MemorySegment>> segments = new ArrayList<>();
    private final BitSet skipped = new BitSet();
    private final BitSet failed = new BitSet();
    private int next;
    private int inFlight;
    private boolean revoked;
    private long bytes;
    private Optional<Failure> firstFailure = Optional.empty();

    /// @param whenRoom called from I/O threads when the store may take more
    DiskJob(
            DiskPlan.Move move,
            boolean load,
            List<RegionMemory> memory,
            BlockStore store,
            int rank,
            Deadline deadline,
            Runnable whenRoom) {
        this.move = move;
        this.load = load;
        this.memory = memory;
        this.store = store;
        this.deadline = deadline;
        this.whenRoom = whenRoom;
        this.keys = new BlockKey[move.hashes().size() * memory.size()];
        for (int i = 0; i < keys.length; i++) {
            int block = move.ids()[i % memory.size()][i / memory.size()];
            boolean absent = block == BlockTable.NO_BLOCK;
            skipped.set(i, absent);
            segments.add(absent ? List.of() : memory.get(i % memory.size()).block(block));
            keys[i] =
                    KvKeys.of(
                            move.hashes().get(i / memory.size()),
                            i % memory.size(),
                            rank,
                            move.first() + i / memory.size());
        }
    }

    TransferId id() {
        return move.id();
    }

    BlockKey[] keys() {
        return keys;
    }

    DiskPlan.Move move() {
        return move;
    }

    /// Hands on what the store takes; true when nothing is left to hand on.
    boolean feed() {
        while (true) {
            int item;
            synchronized (this) {
                while (next < keys.length && skipped.get(next)) {
                    next++;
                }
                if (next >= keys.length || revoked) {
                    return true;
                }
                if (deadline.passed()) {
                    failRest(new Failure(ErrorCode.TIMEOUT, move.id() + " was not done in time"));
                    return true;
                }
                item = next++;
                inFlight++;
            }
            if (!offer(item)) {
                synchronized (this) {
                    next = item;
                    inFlight--;
                }
                return false;
            }
        }
    }

    private boolean offer(int item) {
        try {
            return load
                    ? store.load(keys[item], segments.get(item), deadline, this, item)
                    : store.save(keys[item], segments.get(item), deadline, this, item);
        } catch (KvFerryException e) {
            completed(
                    item,
                    new BlockResult.Failed(
                            e.toFailure())); // a block larger than the store was opened for
            return true;
        }
    }

    @Override
    public void completed(long tag, BlockResult result) {
        int item = (int) tag;
        synchronized (this) {
            inFlight--;
            switch (result) {
                case BlockResult.Failed(Failure failure) -> fail(item, failure);
                case BlockResult.Done _, BlockResult.Located _ ->
                        segments.get(item).forEach(segment -> bytes += segment.byteSize());
            }
            notifyAll();
        }
        whenRoom.run();
    }

    private void fail(int item, Failure failure) {
        failed.set(item);
        if (firstFailure.isEmpty()) {
            firstFailure = Optional.of(failure);
        }
    }

    private void failRest(Failure failure) {
        for (; next < keys.length; next++) {
            if (!skipped.get(next)) {
                fail(next, failure);
            }
        }
    }

    synchronized void revoke() {
        revoked = true;
        notifyAll();
    }

    /// Gives up what was not handed on yet.
    synchronized void abort(Failure failure) {
        failRest(failure);
        notifyAll();
    }

    /// Whether no thread touches a region for this job, now and later.
    synchronized boolean ended() {
        return inFlight == 0 && (revoked || next >= keys.length);
    }

    /// Waits until the job has ended; false when the limit came first.
    synchronized boolean awaitEnd(Deadline limit) {
        try {
            while (!ended()) {
                long left = limit.remainingNanos();
                if (left <= 0) {
                    return false;
                }
                java.util.concurrent.TimeUnit.NANOSECONDS.timedWait(
                        this, Math.max(left, 1_000_000));
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
        if (firstFailure.isEmpty()) {
            return new Completion.Completed(bytes);
        }
        return new Completion.Failed(firstFailure.get(), load ? failedBlocks() : List.of());
    }

    private List<FailedBlocks> failedBlocks() {
        var blocks = new ArrayList<FailedBlocks>();
        for (int group = 0; group < memory.size(); group++) {
            int index = group;
            int[] positions =
                    failed.stream()
                            .filter(item -> item % memory.size() == index)
                            .map(item -> move.first() + item / memory.size())
                            .toArray();
            if (positions.length > 0) {
                blocks.add(new FailedBlocks(group, positions));
            }
        }
        return blocks;
    }
}
