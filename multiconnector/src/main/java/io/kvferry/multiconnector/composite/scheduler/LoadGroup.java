// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.Completion.FailedBlocks;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult.Share;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.KvCacheGroup;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/// A KV load of one request, with the gaps that children left and that others may fill.
final class LoadGroup extends GapGroup {
    /// Tokens up to `to` that are in place, and who brought them.
    private record InPlace(int to, List<Share> shares) {}

    private final CompositeRequest request;
    private final LoadAssignment load;
    private final BlockTableCopy blocks;
    private final List<KvCacheGroup> cacheGroups;
    private final List<Gap> lost = new ArrayList<>();
    private final long openedAt = System.nanoTime();

    /// The sources that are to bring the tokens of each part.
    private final Map<TransferId, List<Share>> promised = new HashMap<>();

    /// Tokens that are in place, by the first of them.
    private final Map<Integer, InPlace> inPlace = new HashMap<>();

    LoadGroup(
            CompositeRequest request,
            LoadAssignment load,
            BlockTableCopy blocks,
            List<KvCacheGroup> cacheGroups) {
        super(load.id(), load.mode());
        this.request = request;
        this.load = load;
        this.blocks = blocks;
        this.cacheGroups = cacheGroups;
    }

    CompositeRequest request() {
        return request;
    }

    @Override
    String requestId() {
        return request.whole().id();
    }

    LoadAssignment load() {
        return load;
    }

    BlockTableCopy blocks() {
        return blocks;
    }

    /// When the load was taken on, on this process's monotonic clock.
    long openedAt() {
        return openedAt;
    }

    @Override
    void partFailed(Part part, Completion.Failed failed) {
        request.exclude(part.child());
        int from = part.to();
        int to = part.from();
        for (var blocksOfGroup : failed.blocks()) {
            for (int position : blocksOfGroup.positions()) {
                if (!covers(part, blocksOfGroup.group(), position)) {
                    gap(whole(part, failed.failure())); // an illegal report: none of it is trusted
                    return;
                }
                int tokens = cacheGroups.get(blocksOfGroup.group()).blockTokens();
                from = Math.min(from, position * tokens);
                to = Math.max(to, (position + 1) * tokens);
            }
        }
        if (from >= to || !cacheGroups.stream().allMatch(KvCacheGroup::keepsAllTokens)) {
            // No blocks are named, which means all failed; or a group does not keep all tokens, so
            // one missing block makes the whole part unusable.
            gap(whole(part, failed.failure()));
            return;
        }
        // A load starts where blocks of all groups do.
        from = Math.max(part.from(), from - from % LoadPlanner.seam(cacheGroups));
        to = Math.min(part.to(), to);
        gap(new Gap(from, to, part.child(), failed.failure()));
        inPlace(part, part.from(), from);
        inPlace(part, to, part.to());
    }

    /// Whether a part loads the block at a position of a cache group.
    private boolean covers(Part part, int group, int position) {
        if (group < 0 || group >= cacheGroups.size()) {
            return false;
        }
        int tokens = cacheGroups.get(group).blockTokens();
        return position >= part.from() / tokens && position < Math.ceilDiv(part.to(), tokens);
    }

    @Override
    void promised(TransferId part, List<Share> shares) {
        promised.put(part, shares);
    }

    @Override
    void partCompleted(Part part) {
        inPlace(part, part.from(), part.to());
    }

    private void inPlace(Part part, int from, int to) {
        if (from < to) {
            var shares = promised.getOrDefault(part.id(), List.of());
            inPlace.put(
                    from, new InPlace(to, LoadPlanner.cut(shares, from - part.from(), to - from)));
        }
    }

    /// The sources that brought the tokens, up to the first missing token.
    List<Share> delivered() {
        var shares = new ArrayList<Share>();
        for (var next = inPlace.get(load.fromToken()); next != null; next = inPlace.get(next.to)) {
            shares.addAll(next.shares);
        }
        return shares;
    }

    @Override
    void partRevoked(Part part) {
        if (revoked()) {
            // Not a failure by itself: when all parts were revoked, so is the whole.
            lost.add(whole(part, new Failure(ErrorCode.CANCELLED, "the load was revoked")));
            return;
        }
        request.exclude(part.child());
        gap(givenUp(part));
    }

    @Override
    void lose(Gap gap) {
        lost.add(gap);
        super.lose(gap);
    }

    int lostTokens() {
        return lost.stream().mapToInt(gap -> gap.to() - gap.from()).sum();
    }

    @Override
    Completion outcome() {
        var whole = super.outcome();
        if (lost.isEmpty() || !(whole.result() instanceof Completion.Failed(var failure, _))) {
            return whole;
        }
        var failed = new ArrayList<FailedBlocks>();
        for (var group : cacheGroups) {
            var positions = new TreeSet<Integer>();
            for (var gap : lost) {
                int end =
                        Math.min(
                                Math.ceilDiv(gap.to(), group.blockTokens()),
                                blocks.count(group.index()));
                for (int position = gap.from() / group.blockTokens(); position < end; position++) {
                    if (blocks.block(group.index(), position) != BlockTable.NO_BLOCK) {
                        positions.add(position);
                    }
                }
            }
            failed.add(
                    new FailedBlocks(
                            group.index(),
                            positions.stream().mapToInt(Integer::intValue).toArray()));
        }
        return new Completion(id(), Completion.ALL_RANKS, new Completion.Failed(failure, failed));
    }
}
