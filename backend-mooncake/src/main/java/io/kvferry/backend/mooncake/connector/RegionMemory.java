// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector;

import io.kvferry.backend.mooncake.connector.wire.WireRegions;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/// The KV memory of one worker, registered with the transfer engine: one registration per
/// contiguous piece, however many layers share it.
///
/// Threading: any thread once constructed; the worker half closes it, after all transfers.
final class RegionMemory implements AutoCloseable {
    private final List<KvRegion> regions;
    private final List<RegisteredMemory> registered = new ArrayList<>();

    RegionMemory(TransferEngine engine, List<KvRegion> regions) {
        this.regions = List.copyOf(regions);
        try {
            for (var piece : pieces(regions)) {
                registered.add(engine.register(piece));
            }
        } catch (KvFerryException e) {
            close();
            throw e;
        }
    }

    List<KvRegion> regions() {
        return regions;
    }

    /// Lowest registered address.
    long start() {
        return registered.getFirst().address();
    }

    /// Bytes from [#start] to the end of the highest piece, gaps included.
    long span() {
        var last = registered.getLast();
        return last.address() + last.bytes() - start();
    }

    /// The regions as a decoder announces them.
    WireRegions toWire() {
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
            rows[i] = -1; // a prefiller may widen packed rows over what lies between them; ours it
            // must not
        }
        return new WireRegions(base, stride, length, names, indices, groups, shared, rows);
    }

    @Override
    public void close() {
        registered.forEach(RegisteredMemory::close);
        registered.clear();
    }

    static long address(KvRegion region) {
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
