// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.bounded.RecentMap;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/// Tensors that a prefiller has put before their request asked for them, and requests whose tensors
/// have not all arrived.
///
/// A transfer is accepted as a whole or not at all: every layer exactly once, with the same number
/// of blocks, from one prefiller. On any error all of it is dropped, its request fails with the
/// reason, and later tensors of it are refused.
///
/// Threading: any thread.
final class ReceivedTensors implements AutoCloseable {
    private static final int REMEMBERED = 1 << 14;
    private static final Failure LOADED =
            new Failure(ErrorCode.LEASE_EXPIRED, "the transfer was loaded before");

    private final TensorForm form;
    private final StagingPool pool;
    private final String owner;
    private final ByteBudget budget;
    private final Duration stagedLimit;
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<String, Transfer> transfers = new HashMap<>();
    private final Map<String, Failure> ended = new RecentMap<>(REMEMBERED);
    private boolean closed;

    /// @param mostBytes of the pool that may be occupied
    /// @param stagedLimit how long a transfer is kept without a request for it
    ReceivedTensors(
            TensorForm form, StagingPool pool, String owner, long mostBytes, Duration stagedLimit) {
        this.form = form;
        this.pool = pool;
        this.owner = owner;
        this.budget = new ByteBudget(mostBytes);
        this.stagedLimit = stagedLimit;
    }

    private final class Transfer {
        private final String key;
        private final Slot[] slots = new Slot[form.layers()];
        private Deadline expiry = Deadline.in(stagedLimit);
        private String from = "";
        private int blocks;
        private int arrived;
        private @Nullable LoadTask load;

        Transfer(String key) {
            this.key = key;
        }
    }

    /// Room for one tensor.
    static final class Slot {
        private final Transfer transfer;
        private final long buffer;
        private final MemorySegment memory;
        private boolean there;

        private Slot(Transfer transfer, long buffer, MemorySegment memory) {
            this.transfer = transfer;
            this.buffer = buffer;
            this.memory = memory;
        }
    }

    /// Allocates room for a tensor that a peer announces.
    ///
    /// @param from the peer that puts it
    /// @throws KvFerryException [ErrorCode#NO_MEMORY], [ErrorCode#ALREADY_ACTIVE] for a tensor that
    ///   was put before, [ErrorCode#INCOMPATIBLE] for another number of blocks, or the reason why
    ///   the transfer has ended. The transfer is then dropped, unless another peer puts it
    Slot begin(String key, int layer, String from, int blocks) {
        Failure why;
        lock.lock();
        try {
            var known = ended.get(key);
            if (known != null || closed) {
                throw (known != null ? known : closedFailure()).toException();
            }
            var transfer = transfers.computeIfAbsent(key, Transfer::new);
            if (transfer.blocks == 0) {
                transfer.blocks = blocks;
                transfer.from = from;
            }
            if (!transfer.from.equals(from)) {
                throw new KvFerryException(
                        ErrorCode.ALREADY_ACTIVE, "another peer puts the tensors of " + key);
            }
            if (transfer.slots[layer] != null) {
                why = new Failure(ErrorCode.ALREADY_ACTIVE, "layer put twice: " + layer);
            } else if (transfer.blocks != blocks) {
                why =
                        new Failure(
                                ErrorCode.INCOMPATIBLE,
                                "layers of " + transfer.blocks + " and of " + blocks + " blocks");
            } else {
                try {
                    var slot = allocate(transfer, form.bytes(blocks));
                    transfer.slots[layer] = slot;
                    return slot;
                } catch (RuntimeException | Error e) { // its request hears of it
                    why = Failure.of(e);
                }
            }
        } finally {
            lock.unlock();
        }
        fail(key, why);
        throw why.toException();
    }

    private Slot allocate(Transfer transfer, long bytes) {
        long buffer = pool.allocate(owner, bytes);
        try {
            var slot = new Slot(transfer, buffer, pool.segment(buffer));
            if (!budget.take(slot.memory.byteSize())) {
                throw new KvFerryException(
                        ErrorCode.NO_MEMORY, "this rank's part of the staging pool is full");
            }
            return slot;
        } catch (RuntimeException | Error e) {
            pool.free(buffer);
            throw e;
        }
    }

    /// A tensor has arrived: copies it into its room, unless the transfer has ended meanwhile.
    void arrived(Slot slot, MemorySegment tensor) {
        lock.lock();
        try {
            if (transfers.get(slot.transfer.key) != slot.transfer || !pool.pin(slot.buffer)) {
                return;
            }
        } finally {
            lock.unlock();
        }
        try {
            MemorySegment.copy(tensor, 0, slot.memory, 0, form.bytes(slot.transfer.blocks));
        } finally {
            pool.unpin(slot.buffer);
        }
        LoadTask ready = null;
        lock.lock();
        try {
            if (transfers.get(slot.transfer.key) == slot.transfer) {
                slot.there = true;
                slot.transfer.arrived++;
                ready = taken(slot.transfer);
            }
        } finally {
            lock.unlock();
        }
        if (ready != null) {
            give(slot.transfer, ready);
        }
    }

    /// A request asks for its tensors.
    void load(LoadTask load) {
        Failure why = null;
        Transfer transfer = null;
        LoadTask ready = null;
        lock.lock();
        try {
            why = closed ? closedFailure() : ended.get(load.transfer());
            if (why == null) {
                transfer = transfers.computeIfAbsent(load.transfer(), Transfer::new);
                if (transfer.load != null) {
                    why =
                            new Failure(
                                    ErrorCode.ALREADY_ACTIVE,
                                    "two requests ask for " + load.transfer());
                } else {
                    transfer.load = load;
                    transfer.expiry = load.deadline();
                    ready = taken(transfer);
                }
            }
        } finally {
            lock.unlock();
        }
        if (why != null) {
            load.use().fail(why);
        } else if (ready != null && transfer != null) {
            give(transfer, ready);
        }
    }

    /// Under the lock. Takes a transfer out that is complete and asked for.
    private @Nullable LoadTask taken(Transfer transfer) {
        var load = transfer.load;
        if (load == null || transfer.arrived < form.layers()) {
            return null;
        }
        ended.put(transfer.key, LOADED);
        transfers.remove(transfer.key); // last: from here on only the caller knows it
        return load;
    }

    /// Copies on its own thread, since others may wait for the caller's.
    private void give(Transfer transfer, LoadTask load) {
        try {
            var _ = Thread.ofVirtual().name(owner + "-copy").start(() -> copy(transfer, load));
        } catch (RuntimeException | Error e) { // no memory for a thread
            free(transfer);
            load.use().fail(Failure.of(e));
        }
    }

    private void copy(Transfer transfer, LoadTask load) {
        Outcome outcome;
        try {
            outcome = copied(transfer, load);
        } catch (RuntimeException | Error e) {
            outcome = Outcome.Failed.of(e);
        }
        free(transfer); // before the end is reported
        load.use().finish(outcome);
    }

    private Outcome copied(Transfer transfer, LoadTask load) {
        var misfit = load.misfit(transfer.blocks);
        if (misfit.isPresent()) {
            return new Outcome.Failed(misfit.get());
        }
        for (int layer = 0; layer < form.layers(); layer++) {
            int at = layer;
            var memory = transfer.slots[layer].memory;
            if (!load.use().copy(() -> load.scatter(form, at, transfer.blocks, memory))) {
                break; // it is over, with another outcome
            }
        }
        return new Outcome.Done(load.bytes(form));
    }

    private void free(Transfer transfer) {
        for (var slot : transfer.slots) {
            if (slot != null) {
                pool.free(slot.buffer); // later, where a copy has pinned it
                budget.give(slot.memory.byteSize());
            }
        }
    }

    /// Ends a transfer; what still comes for it is refused.
    void fail(String key, Failure why) {
        Transfer transfer;
        lock.lock();
        try {
            ended.putIfAbsent(key, why);
            transfer = transfers.remove(key); // last, as above
        } finally {
            lock.unlock();
        }
        end(transfer, why);
    }

    /// Ends what a peer puts, or would have put; what another one puts is not touched.
    void failPut(String key, String from, Failure why) {
        Transfer transfer;
        lock.lock();
        try {
            transfer = transfers.get(key);
            if (transfer != null && !transfer.from.isEmpty() && !transfer.from.equals(from)) {
                return;
            }
            ended.putIfAbsent(key, why);
            transfers.remove(key); // last, as above
        } finally {
            lock.unlock();
        }
        end(transfer, why);
    }

    private void end(@Nullable Transfer transfer, Failure why) {
        if (transfer == null) {
            return;
        }
        free(transfer);
        if (transfer.load != null) {
            transfer.load.use().fail(why);
        }
    }

    /// A load was given up: its tensors go.
    void revoke(LoadTask load) {
        fail(load.transfer(), new Failure(ErrorCode.CANCELLED, "the load was given up"));
        load.use().cancel();
    }

    /// A prefiller is lost: incomplete transfers from it, and loads that wait for it, fail.
    void peerLost(String peer) {
        var why = new Failure(ErrorCode.PEER_LOST, "the prefiller " + peer + " has gone");
        endThose(transfer -> {
            var load = transfer.load;
            boolean whole = transfer.arrived == form.layers();
            boolean its = transfer.from.equals(peer);
            return !whole && (its || load != null && load.peer().equals(peer)) ? why : null;
        });
    }

    /// Ends what waits for too long.
    void reap() {
        var why = new Failure(ErrorCode.TIMEOUT, "tensors are missing, or were not requested");
        endThose(transfer -> transfer.expiry.passed() ? why : null);
    }

    private interface Verdict {
        @Nullable Failure on(Transfer transfer);
    }

    private void endThose(Verdict verdict) {
        List<Transfer> all;
        lock.lock();
        try {
            all = List.copyOf(transfers.values());
        } finally {
            lock.unlock();
        }
        for (var transfer : all) {
            end(transfer, verdict);
        }
    }

    private void end(Transfer transfer, Verdict verdict) {
        Failure why;
        lock.lock();
        try {
            why = transfers.get(transfer.key) == transfer ? verdict.on(transfer) : null;
            if (why == null) {
                return;
            }
            ended.put(transfer.key, why);
            transfers.remove(transfer.key); // last, as above
        } finally {
            lock.unlock();
        }
        end(transfer, why);
    }

    /// Bytes of the pool that are occupied.
    long taken() {
        return budget.taken();
    }

    private static Failure closedFailure() {
        return new Failure(ErrorCode.CLOSED, "the connector is closed");
    }

    @Override
    public void close() {
        lock.lock();
        try {
            closed = true;
        } finally {
            lock.unlock();
        }
        endThose(_ -> closedFailure());
    }
}
