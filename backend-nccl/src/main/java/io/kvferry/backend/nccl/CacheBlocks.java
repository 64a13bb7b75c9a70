// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.KvRegion;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.stream.IntStream;

/// The cache of one rank as transfers see it: regions in the order of the model's layers.
///
/// Threading: immutable.
final class CacheBlocks {
    private final List<KvRegion> regions;
    private final int groups;

    /// @throws KvFerryException [ErrorCode#UNSUPPORTED] for memory that the host plane cannot show
    CacheBlocks(List<KvRegion> regions) {
        this.regions =
                regions.stream().sorted(Comparator.comparingInt(KvRegion::layerIndex)).toList();
        this.groups = 1 + regions.stream().mapToInt(KvRegion::group).max().orElse(-1);
        for (var region : regions) {
            if (region.blockBytes() > Placement.MAX_BLOCK_BYTES) {
                throw new KvFerryException(
                        ErrorCode.UNSUPPORTED,
                        "layer "
                                + region.layer()
                                + " has blocks of "
                                + region.blockBytes()
                                + " bytes, at most "
                                + Placement.MAX_BLOCK_BYTES
                                + " can be sent");
            }
            var _ = region.segment(); // throws for device memory
        }
    }

    List<KvRegion> regions() {
        return regions;
    }

    /// Where the last `counts` of these blocks lie.
    ///
    /// @param tails ids per group
    Placement tails(List<int[]> tails, int[] counts) {
        var last = new ArrayList<int[]>();
        for (int group = 0; group < groups; group++) {
            var ids = tails.get(group);
            last.add(Arrays.copyOfRange(ids, ids.length - counts[group], ids.length));
        }
        return new Placement(
                regions.stream()
                        .map(region ->
                                new Placement.Part(
                                        region.layerIndex(),
                                        region.segment(),
                                        region.strideBytes(),
                                        region.blockBytes(),
                                        last.get(region.group())))
                        .toList());
    }

    /// Blocks of the same sizes one behind the other, each layer in a segment of its own.
    Placement packed(List<MemorySegment> segments, int[] counts) {
        var parts = new ArrayList<Placement.Part>();
        for (int i = 0; i < regions.size(); i++) {
            var region = regions.get(i);
            parts.add(
                    new Placement.Part(
                            region.layerIndex(),
                            segments.get(i),
                            region.blockBytes(),
                            region.blockBytes(),
                            IntStream.range(0, counts[region.group()]).toArray()));
        }
        return new Placement(parts);
    }

    /// Bytes of each layer's part of that many blocks per group.
    ///
    /// @throws ArithmeticException when that is more than a long holds
    long[] partBytes(int[] counts) {
        return regions.stream()
                .mapToLong(region ->
                        Math.multiplyExact(region.blockBytes(), (long) counts[region.group()]))
                .toArray();
    }

    /// Parts of a placement that belong to layers up to this one.
    int partsThrough(int layerIndex) {
        int parts = 0;
        while (parts < regions.size() && regions.get(parts).layerIndex() <= layerIndex) {
            parts++;
        }
        return parts;
    }

    /// Whether `counts` names every group, and of no group more blocks than `most` has.
    boolean covers(List<int[]> most, int[] counts) {
        if (counts.length != groups || most.size() != groups) {
            return false;
        }
        for (int group = 0; group < groups; group++) {
            if (counts[group] < 0 || counts[group] > most.get(group).length) {
                return false;
            }
        }
        return true;
    }

    int groups() {
        return groups;
    }

    static int[] counts(List<int[]> tails) {
        return tails.stream().mapToInt(ids -> ids.length).toArray();
    }
}
