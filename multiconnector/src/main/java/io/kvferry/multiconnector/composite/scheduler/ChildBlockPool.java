// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.wire.ChildNames;
import io.kvferry.multiconnector.composite.wire.CompositePayload;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.TransferId;

import java.util.Optional;

/// The block pool as seen by one child. Leases carry the child's name outside the composite. Blocks
/// that are still being loaded cannot be leased, because a lease entitles the child to save them.
///
/// Threading: scheduler thread only, as the pool itself.
final class ChildBlockPool implements BlockPool {
    private final BlockPool whole;
    private final ChildNames names;
    private final int child;
    private final LoadingBlocks loading;
    private final PlanPayload plan;
    private final OpenGroups groups;
    private final ChildSlot<?> slot;

    /// @param slot the child's, which closes the leases that the child leaves open
    ChildBlockPool(
            BlockPool whole,
            ChildNames names,
            int child,
            LoadingBlocks loading,
            PlanPayload plan,
            OpenGroups groups,
            ChildSlot<?> slot) {
        this.slot = slot;
        this.groups = groups;
        this.whole = whole;
        this.names = names;
        this.child = child;
        this.loading = loading;
        this.plan = plan;
    }

    @Override
    public BlockPool.Lease lease(TransferId id, int group, int[] blocks, Deadline deadline) {
        int unfinished = loading.firstOf(group, blocks);
        if (unfinished >= 0) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    names.name(child)
                            + " asks for a lease of block "
                            + unfinished
                            + " of group "
                            + group
                            + " for "
                            + id
                            + ", which is still being loaded. Lease blocks once a step shows them as computed");
        }
        if (slot.isOff()) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE, names.name(child) + " is off, and gets no lease");
        }
        var outward = names.outward(child, id);
        var lease = new ChildLease(id, outward, whole.lease(outward, group, blocks, deadline));
        slot.opened(lease);
        plan.opened(CompositePayload.Open.alone(child, outward));
        return lease;
    }

    private final class ChildLease implements BlockPool.Lease {
        private final TransferId id;
        private final TransferId outward;
        private final BlockPool.Lease lease;

        ChildLease(TransferId id, TransferId outward, BlockPool.Lease lease) {
            this.id = id;
            this.outward = outward;
            this.lease = lease;
        }

        @Override
        public Deadline deadline() {
            return lease.deadline();
        }

        @Override
        public boolean renew(Deadline later) {
            return lease.renew(later);
        }

        @Override
        public void close() {
            slot.closed(this);
            plan.closed(outward);
            lease.close();
        }
    }

    /// Several children's holds are reported to the engine as one, which lasts as long as the
    /// longest.
    @Override
    public Optional<Deadline> renewHold(TransferId id, Deadline deadline) {
        var outward = names.outward(child, id);
        return whole.renewHold(groups.groupOf(outward).orElse(outward), deadline);
    }

    @Override
    public int freeBlocks() {
        return whole.freeBlocks();
    }
}
