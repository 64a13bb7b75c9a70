// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.copy;

import io.kvferry.backend.mooncake.p2p.copy.CopyPlan.RegionCopy;
import io.kvferry.backend.mooncake.p2p.copy.TpPairing.Heads;
import io.kvferry.backend.mooncake.p2p.plane.RegionMemory;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.p2p.wire.PeerExtension;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.RankInfo;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/// Matches a decoder's regions with the prefiller's own by layer name and occurrence, checks index,
/// group and length, and slices blocks by KV heads where the two engines split them differently.
///
/// A block that keeps a head's tokens together (`[H][N]`) is sliced in one piece, one that keeps a
/// token's heads together (`[N][H]`) in one piece per token. kvferry peers announce their layout.
/// vLLM 0.33.0, recognized by the form of its request, has the first. Older versions have others
/// and do not announce them: they are refused unless the settings trust them.
///
/// Every mismatch is [ErrorCode#INCOMPATIBLE] with a message for the decoder.
public final class CopyPlanner {
    private final List<KvRegion> local;
    private final KvCacheSpec cache;
    private final RankInfo rank;
    private final String layout;
    private final boolean trusting;

    /// @param layout how this side lays a block out, in the form of [PeerExtension#layout]
    /// @param trusting whether decoders that do not show theirs are served
    public CopyPlanner(
            List<KvRegion> local,
            KvCacheSpec cache,
            RankInfo rank,
            String layout,
            boolean trusting) {
        this.trusting = trusting;
        this.local = List.copyOf(local);
        this.cache = cache;
        this.rank = rank;
        this.layout = layout;
    }

    /// The worker that it plans for, in the form of [PeerExtension#worker].
    public String worker() {
        return PeerExtension.worker(rank.tpRank(), rank.ppRank());
    }

    public CopyPlan plan(XferMetadata request) {
        var partners = TpPairing.partners(rank.tpRank(), rank.tpSize(), request.remoteTpSize());
        if (!partners.contains(request.remoteTpRank())) {
            throw incompatible(
                    "D tensor-parallel rank "
                            + request.remoteTpRank()
                            + "/"
                            + request.remoteTpSize()
                            + " is not paired with P rank "
                            + rank.tpRank()
                            + "/"
                            + rank.tpSize());
        }
        int stages =
                request.remotePpSize() > 1 && request.remotePpSize() != rank.ppSize()
                        ? request.remotePpSize()
                        : 1;
        request.extension()
                .ifPresentOrElse(this::requireSameLayout, () -> requireKnownLayout(request));
        var copies = new ArrayList<RegionCopy>();
        for (var pair : RegionPairs.of(local, request, rank)) {
            copy(pair, request).ifPresent(copies::add);
        }
        return new CopyPlan(copies, cache.groups().size(), partners.count() * stages);
    }

    private void requireSameLayout(PeerExtension decoder) {
        if (!decoder.layout().equals(layout)) {
            throw incompatible(
                    "blocks are laid out as "
                            + layout
                            + " on P and as "
                            + decoder.layout()
                            + " on D");
        }
    }

    private void requireKnownLayout(XferMetadata request) {
        if (trusting || request.generation() == Generation.G7 && cache.has(KvLayout.LBHNC)) {
            return;
        }
        throw incompatible(
                cache.has(KvLayout.LBHNC)
                        ? "D sends requests of "
                                + request.generation()
                                + ", which do not show how its blocks are laid out; on P they are "
                                + layout
                                + ". If they are alike, say peer_layout=alike on P"
                        : "blocks are laid out as "
                                + layout
                                + " on P, and those of vLLM as "
                                + KvLayout.LBHNC);
    }

    private Optional<RegionCopy> copy(RegionPairs.Pair pair, XferMetadata request) {
        var region = pair.local();
        long length = pair.remoteBytes();
        long stride = pair.remoteStride();
        if (length < 1 || stride < length) {
            throw incompatible(
                    "layer "
                            + region.layer()
                            + ": D sent block length "
                            + stride
                            + ", KV length "
                            + length);
        }
        return slice(region, request, length)
                .map(slice ->
                        new RegionCopy(
                                region.group(),
                                region.blocks(),
                                RegionMemory.address(region),
                                region.strideBytes(),
                                slice.localOffset(),
                                pair.remoteBase(),
                                stride,
                                slice.remoteOffset(),
                                slice.rows(),
                                region.blockBytes() / slice.rows(),
                                length / slice.rows(),
                                slice.length()));
    }

    /// The part of a block that is copied.
    ///
    /// @param rows as in [RegionCopy]; offsets are of the first, the length of each
    private record Slice(long localOffset, long remoteOffset, int rows, long length) {}

    private Optional<Slice> slice(KvRegion region, XferMetadata request, long remoteLength) {
        long localLength = region.blockBytes();
        if (rank.tpSize() == request.remoteTpSize()) {
            RegionPairs.check(region, "KV block length", localLength, remoteLength);
            return Optional.of(new Slice(0, 0, 1, localLength));
        }
        int kvHeads = kvHeads(region);
        var mine = TpPairing.heads(rank.tpRank(), rank.tpSize(), kvHeads);
        var theirs = TpPairing.heads(request.remoteTpRank(), request.remoteTpSize(), kvHeads);
        if (localLength % mine.count() != 0
                || localLength / mine.count() * theirs.count() != remoteLength) {
            throw incompatible(
                    "layer "
                            + region.layer()
                            + ": KV block length "
                            + localLength
                            + " for "
                            + mine.count()
                            + " heads on P, "
                            + remoteLength
                            + " for "
                            + theirs.count()
                            + " on D");
        }
        if (mine.replicated() && !firstOfItsHeads(mine, kvHeads, request)) {
            return Optional.empty();
        }
        int first = Math.max(mine.first(), theirs.first());
        int count = Math.min(mine.first() + mine.count(), theirs.first() + theirs.count()) - first;
        if (count < 1) {
            return Optional.empty();
        }
        boolean split = mine.count() > count || theirs.count() > count;
        int rows = split ? rows(region, request) : 1;
        long head = localLength / mine.count() / rows;
        if (head * rows * mine.count() != localLength) {
            throw incompatible(
                    "layer "
                            + region.layer()
                            + ": KV block length "
                            + localLength
                            + " is no multiple of "
                            + rows
                            + " tokens of "
                            + mine.count()
                            + " heads");
        }
        return Optional.of(
                new Slice(
                        (first - mine.first()) * head,
                        (first - theirs.first()) * head,
                        rows,
                        count * head));
    }

    /// KV heads of the model in a layer, 1 where every rank has all of it.
    private int kvHeads(KvRegion region) {
        return switch (cache.groups().get(region.group()).format()) {
            case KvFormat.Heads heads -> heads.kvHeads();
            case KvFormat.Vectors _ -> 1;
            case KvFormat.Opaque _ ->
                    throw incompatible(
                            "layer "
                                    + region.layer()
                                    + " keeps what only its runner can read, which is not moved"
                                    + " between different tensor-parallel sizes");
        };
    }

    /// Of the ranks that hold the same heads, only the first that this decoder talks to sends them.
    private boolean firstOfItsHeads(Heads mine, int kvHeads, XferMetadata request) {
        var asked =
                TpPairing.partners(request.remoteTpRank(), request.remoteTpSize(), rank.tpSize());
        for (int other = asked.first(); other < rank.tpRank(); other++) {
            if (TpPairing.heads(other, rank.tpSize(), kvHeads).first() == mine.first()) {
                return false;
            }
        }
        return true;
    }

    /// In how many pieces some of a block's heads can be copied.
    private int rows(KvRegion region, XferMetadata request) {
        if (!request.generation().tellsStrides() && request.extension().isEmpty()) {
            throw incompatible(
                    "a request of "
                            + request.generation()
                            + " does not say whether a block is K and V in halves, as vLLM's then"
                            + " was, so that its heads cannot be split; use the same"
                            + " tensor-parallel size on both sides");
        }
        var group = cache.groups().get(region.group());
        boolean attention =
                switch (group.kind()) {
                    case FULL_ATTENTION, SLIDING_WINDOW -> true;
                    case RECURRENT_STATE, HIDDEN_STATES -> false;
                };
        boolean headMajor =
                group.format() instanceof KvFormat.Heads heads && heads.layout().isHeadMajor();
        boolean tokenMajor =
                group.format() instanceof KvFormat.Heads heads && !heads.layout().isHeadMajor();
        if (attention && headMajor) {
            return 1;
        }
        if (attention && tokenMajor && request.extension().isPresent()) {
            return group.blockTokens();
        }
        var why =
                attention && tokenMajor
                        ? "; D does not say that its layout is the same, as kvferry peers do"
                        : "";
        throw incompatible(
                "layer "
                        + region.layer()
                        + " ("
                        + group.format()
                        + ", "
                        + group.kind()
                        + ") cannot be split by heads"
                        + why
                        + "; use the same tensor-parallel size on both sides, or layout LBHNC");
    }

    static KvFerryException incompatible(String text) {
        return new KvFerryException(ErrorCode.INCOMPATIBLE, text);
    }
}
