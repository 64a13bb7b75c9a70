// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.plane;

import io.kvferry.backend.mooncake.p2p.wire.WireRegions;
import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.toolkit.recovery.OpeningParts;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/// The KV memory of one worker, registered with what moves the bytes: one registration per
/// contiguous piece, however many layers share it.
///
/// Threading: any thread once constructed; the worker half closes it, after all transfers.
public final class RegionMemory implements AutoCloseable {
    private final List<KvRegion> regions;
    private final List<DataPlane.Registered> registered = new ArrayList<>();

    /// By region: bytes after each block that belong to no region.
    private final long[] padding;

    public RegionMemory(DataPlane plane, List<KvRegion> regions) {
        this.regions = List.copyOf(regions);
        this.padding = regions.stream().mapToLong(region -> padding(region, regions)).toArray();
        try (var parts = new OpeningParts()) {
            parts.add(this, RegionMemory::close);
            for (var piece : pieces(regions)) {
                registered.add(plane.register(piece));
            }
            parts.keep();
        }
    }

    public List<KvRegion> regions() {
        return regions;
    }

    /// The memory of blocks in all regions of their group. Between adjacent blocks it includes what
    /// belongs to no region: vLLM's prefillers write over it.
    ///
    /// @param blocks ids by group
    public Extents extents(List<int[]> blocks) {
        return extents(blocks, true);
    }

    /// As [#extents], but only what belongs to the blocks: all of it is written by who fills them.
    public Extents contents(List<int[]> blocks) {
        return extents(blocks, false);
    }

    private Extents extents(List<int[]> blocks, boolean padded) {
        var extents = new Extents.Builder();
        for (int i = 0; i < regions.size(); i++) {
            var region = regions.get(i);
            int[] ids = blocks.get(region.group());
            for (int k = 0; k < ids.length; k++) {
                boolean goesOn = padded && k + 1 < ids.length && ids[k + 1] == ids[k] + 1;
                extents.add(
                        address(region) + region.offset(ids[k]),
                        region.blockBytes() + (goesOn ? padding[i] : 0));
            }
        }
        return extents.build();
    }

    private static long padding(KvRegion region, List<KvRegion> all) {
        long stride = region.strideBytes();
        long free = stride - region.blockBytes();
        for (var other : all) {
            long distance = Math.floorMod(address(other) - address(region), stride);
            if (free > 0 && distance > 0 && overlap(region, other)) {
                free =
                        other.strideBytes() == stride
                                ? Math.min(free, Math.max(0, distance - region.blockBytes()))
                                : 0;
            }
        }
        return free;
    }

    private static boolean overlap(KvRegion one, KvRegion other) {
        return address(one) < address(other) + segment(other).byteSize()
                && address(other) < address(one) + segment(one).byteSize();
    }

    /// The regions as a decoder announces them.
    public WireRegions toWire() {
        int n = regions.size();
        var base = new long[n];
        var stride = new long[n];
        var length = new long[n];
        var names = new ArrayList<String>(n);
        var indices = new int[n];
        var groups = new int[n];
        var shared = new ArrayList<int[]>(n);
        var rows = new long[n];
        for (int i = 0; i < n; i++) {
            var region = regions.get(i);
            base[i] = address(region);
            stride[i] = region.strideBytes();
            length[i] = region.blockBytes();
            names.add(region.layer());
            indices[i] = region.layerIndex();
            groups[i] = region.group();
            shared.add(new int[] {region.group()});
            // A prefiller may widen packed rows over what lies between them; ours it must not.
            rows[i] = -1;
        }
        return new WireRegions(base, stride, length, names, indices, groups, shared, rows);
    }

    @Override
    public void close() {
        registered.forEach(DataPlane.Registered::close);
        registered.clear();
    }

    public static long address(KvRegion region) {
        return segment(region).address();
    }

    private static MemorySegment segment(KvRegion region) {
        return switch (region.memory()) {
            case MemoryRange.Host(MemorySegment segment) -> segment;
            case MemoryRange.Device _,
                    MemoryRange.FileRange _,
                    MemoryRange.ObjectRange _,
                    MemoryRange.VolumeRange _ ->
                    throw new KvFerryException(
                            ErrorCode.UNSUPPORTED,
                            "MooncakeConnector moves host memory; the region of "
                                    + region.layer()
                                    + " is "
                                    + region.memory().kind());
        };
    }

    /// The memory of all regions as disjoint pieces in address order: layers of one slab, also
    /// interleaved ones, make one piece.
    @SuppressWarnings(
            "restricted") // a segment over several slices of what the engine allocated as one
    private static List<MemorySegment> pieces(List<KvRegion> regions) {
        var sorted =
                regions.stream()
                        .map(RegionMemory::segment)
                        .sorted(Comparator.comparingLong(MemorySegment::address))
                        .toList();
        var pieces = new ArrayList<MemorySegment>();
        for (var next : sorted) {
            var last = pieces.isEmpty() ? MemorySegment.NULL : pieces.getLast();
            long end = last.address() + last.byteSize();
            if (pieces.isEmpty() || next.address() > end) {
                pieces.add(next);
            } else if (next.address() + next.byteSize() > end) {
                pieces.set(
                        pieces.size() - 1,
                        MemorySegment.ofAddress(last.address())
                                .reinterpret(next.address() + next.byteSize() - last.address()));
            }
        }
        return pieces;
    }
}
