// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.block.CachePool;
import io.kvferry.engine.block.RequestBlocks;
import io.kvferry.engine.connector.GuardedKvScheduler;
import io.kvferry.engine.connector.Transfer;
import io.kvferry.engine.connector.Transfer.Kind;
import io.kvferry.engine.connector.Transfers;
import io.kvferry.engine.telemetry.Metrics;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.TransferId;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.IntConsumer;

/// Loads, holds and leases of KV blocks; the block pool as the connector sees it.
///
/// Threading: scheduler thread only.
final class KvTransfers implements BlockPool {
    private final GuardedKvScheduler connector;
    private final Transfers transfers;
    private final CachePool pool;
    private final int groups;
    private final Metrics metrics;
    private List<EndedLoad> ended = new ArrayList<>();
    private int leased;

    /// A load that has ended for its request.
    ///
    /// @param result never Revoked
    record EndedLoad(RequestState request, Completion.Result result) {}

    KvTransfers(GuardedKvScheduler connector, Transfers transfers, KvCache cache, Metrics metrics) {
        this.connector = connector;
        this.transfers = transfers;
        this.pool = cache.pool();
        this.groups = cache.groups();
        this.metrics = metrics;
    }

    /// The load of a request. Its blocks stay with the request while that waits for them, and here
    /// afterwards.
    private final class BlockLoad extends Transfer {
        private final RequestState request;
        private @Nullable RequestBlocks kept;

        BlockLoad(TransferId id, RequestState request) {
            super(id, Kind.LOAD);
            this.request = request;
        }

        void keep() {
            kept = request.blocks.moveOut();
        }

        @Override
        protected void ended(Completion.Result result) {
            boolean completed = result instanceof Completion.Completed;
            metrics.count(completed ? Counter.LOADS_COMPLETED : Counter.LOADS_FAILED);
            if (kept == null) {
                request.transfer = null;
                ended.add(new EndedLoad(request, result));
            } else {
                kept.release();
            }
        }

        @Override
        protected void discard() {
            if (kept != null) {
                kept.release();
            }
        }

        /// The request waits no longer; its blocks do.
        @Override
        protected void unanswered(Failure failure) {
            if (kept == null) {
                keep();
                request.transfer = null;
                ended.add(new EndedLoad(request, new Completion.Failed(failure, List.of())));
            }
        }

        @Override
        public int blocks() {
            return table().count() * groups;
        }

        @Override
        public void forEachBlock(IntConsumer block) {
            table().forEach(block);
        }

        private RequestBlocks table() {
            return kept == null ? request.blocks : kept;
        }
    }

    /// The blocks of an ended request.
    private static final class BlockHold extends Transfer {
        private final RequestBlocks kept;

        BlockHold(TransferId id, RequestBlocks kept) {
            super(id, Kind.HOLD);
            this.kept = kept;
        }

        @Override
        protected void ended(Completion.Result result) {
            kept.release();
        }

        @Override
        protected void discard() {
            kept.release();
        }

        @Override
        public int blocks() {
            return kept.count() * kept.groups();
        }

        @Override
        public void forEachBlock(IntConsumer block) {
            kept.forEach(block);
        }
    }

    /// Blocks of one group that the connector reads.
    private final class BlockLease extends Transfer implements BlockPool.Lease {
        private final int[] ids;

        BlockLease(TransferId id, int[] ids) {
            super(id, Kind.LEASE);
            this.ids = ids;
            for (int block : ids) {
                pool.retain(block);
            }
            leased += ids.length;
        }

        @Override
        public boolean renew(Deadline later) {
            return transfers.renew(this, later);
        }

        @Override
        public void close() {
            transfers.close(this);
        }

        @Override
        protected void ended(Completion.Result result) {
            discard();
        }

        @Override
        protected void discard() {
            leased -= ids.length;
            for (int i = ids.length - 1; i >= 0; i--) {
                pool.release(ids[i]);
            }
        }

        @Override
        public int blocks() {
            return ids.length;
        }

        @Override
        public void forEachBlock(IntConsumer block) {
            for (int id : ids) {
                block.accept(id);
            }
        }
    }

    /// Starts the load of a request's blocks.
    ///
    /// @return false when the connector failed to accept it. It may write nevertheless, so the
    ///   blocks stay out of use until the workers have answered
    boolean load(RequestState request, int from, int to, LoadMode mode) {
        var load = new BlockLoad(request.loadId(), request);
        metrics.count(Counter.LOADS_STARTED);
        transfers.openLoad(load);
        request.transfer = load;
        var assignment = new LoadAssignment(load.id(), from, to, mode);
        if (connector.onAllocated(request, request.blocks, assignment)) {
            return true;
        }
        load.keep();
        transfers.revokeAfterPlan(load);
        request.transfer = null;
        return false;
    }

    /// The request no longer waits for its load: the blocks stay here until every rank has let go
    /// of them.
    void abandon(RequestState request) {
        if (request.transfer instanceof BlockLoad load) {
            load.keep();
            transfers.revoke(load);
            request.transfer = null;
        } else {
            request.blocks.release();
        }
    }

    /// The blocks of an ended request stay for the connector.
    void hold(TransferId id, Deadline limit, RequestBlocks blocks) {
        var kept = blocks.moveOut();
        if (!transfers.openHold(new BlockHold(id, kept), limit)) {
            kept.release();
        }
    }

    /// Transfers that have been open for longer than `nanos` and may keep their blocks for long:
    /// holds that were not fetched, and transfers whose revocation is unanswered.
    List<Transfer> stale(long nanos, long now) {
        return transfers.stale(now - nanos);
    }

    /// Blocks that would be free without these transfers; several of them may have the same ones,
    /// and running requests too.
    int keptBy(List<Transfer> transfers) {
        var references = new int[pool.total()];
        for (var transfer : transfers) {
            transfer.forEachBlock(block -> references[block]++);
        }
        int kept = 0;
        for (int block = 0; block < references.length; block++) {
            if (references[block] > 0 && references[block] == pool.references(block)) {
                kept++;
            }
        }
        return kept;
    }

    /// Loads that have ended since the last call.
    List<EndedLoad> takeEnded() {
        if (ended.isEmpty()) {
            return List.of();
        }
        var taken = ended;
        ended = new ArrayList<>();
        return taken;
    }

    @Override
    public BlockPool.Lease lease(TransferId id, int group, int[] blocks, Deadline deadline) {
        if (group < 0 || group >= groups) {
            throw refused(ErrorCode.INVALID_REQUEST, id, "no group " + group);
        }
        if (id.direction() != TransferId.Direction.SAVE) {
            throw refused(ErrorCode.INVALID_REQUEST, id, "the id of a load");
        }
        if (connector.disabled()) {
            throw refused(ErrorCode.UNAVAILABLE, id, "a worker half of the connector is gone");
        }
        for (int block : blocks) {
            if (block < 0 || block >= pool.total() || pool.references(block) == 0) {
                throw refused(
                        ErrorCode.INVALID_REQUEST,
                        id,
                        "block " + block + " is not held by any request");
            }
        }
        var lease = new BlockLease(id, blocks.clone());
        transfers.openLease(lease, deadline);
        return lease;
    }

    private static KvFerryException refused(ErrorCode code, TransferId id, String why) {
        return new KvFerryException(code, "lease " + id + ": " + why);
    }

    @Override
    public Optional<Deadline> renewHold(TransferId id, Deadline deadline) {
        return transfers.prolongHold(id, deadline);
    }

    @Override
    public int freeBlocks() {
        return pool.free();
    }

    /// Blocks under leases.
    int leasedBlocks() {
        return leased;
    }
}
