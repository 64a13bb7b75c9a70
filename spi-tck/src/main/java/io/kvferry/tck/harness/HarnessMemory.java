// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.MemoryRange.DeviceContext;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.tck.Mix;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;

/// The regions of all ranks. The expected bytes of a token are a function of its token prefix,
/// layer and rank, so any copy can be verified. Free blocks hold poison and gaps hold guard bytes,
/// so that stray writes are detected.
///
/// Threading: written by the test's thread; connectors write concurrently into what was assigned to
/// them.
final class HarnessMemory implements AutoCloseable {
    private static final long PAGE = 4096;
    private static final byte GUARD = (byte) 0xC7;

    private final HarnessShape shape;
    private final Arena arena = Arena.ofShared();
    private final List<List<KvRegion>> ranks = new ArrayList<>();
    private final List<ProvidedMemory> provided = new ArrayList<>();
    private final int[] generation;

    HarnessMemory(HarnessShape shape) {
        this.shape = shape;
        this.generation = new int[shape.blocks()];
        for (int rank = 0; rank < shape.ranks(); rank++) {
            ranks.add(regions(rank, arena.allocate(bytes(rank), PAGE)));
        }
        for (int block = 0; block < shape.blocks(); block++) {
            poison(block);
        }
    }

    /// Bytes of the regions of one rank, each rounded up to pages.
    long bytes(int rank) {
        long bytes = 0;
        for (var group : shape.spec(shape.stageOf(rank)).groups()) {
            bytes += regionBytes(group) * group.layers().size();
        }
        return bytes;
    }

    private long regionBytes(KvCacheGroup group) {
        return (shape.strideBytes(group.index()) * shape.blocks() + PAGE - 1) & -PAGE;
    }

    /// The regions of a rank are to lie in memory that its connector provides. They are as poisoned
    /// as before.
    void lieIn(int rank, ProvidedMemory memory) {
        provided.add(memory);
        var segment = memory.range().segment();
        assertThat(segment.byteSize()).as("bytes provided").isGreaterThanOrEqualTo(bytes(rank));
        assertThat(segment.address() % PAGE).as("alignment of provided memory").isZero();
        assertThat(segment.mismatch(arena.allocate(segment.byteSize(), PAGE)))
                .as("first byte of provided memory that is not zero")
                .isEqualTo(-1);
        var old = ranks.set(rank, regions(rank, segment));
        for (int i = 0; i < old.size(); i++) {
            ranks.get(rank).get(i).segment().copyFrom(old.get(i).segment());
        }
    }

    private List<KvRegion> regions(int rank, MemorySegment whole) {
        var regions = new ArrayList<KvRegion>();
        int stage = shape.stageOf(rank);
        long at = 0;
        for (var group : shape.spec(stage).groups()) {
            var positions = shape.layersOf(group.index(), stage);
            for (int i = 0; i < positions.length; i++) {
                var name = group.layers().get(i);
                long stride = shape.strideBytes(group.index());
                var memory = whole.asSlice(at, stride * shape.blocks());
                at += regionBytes(group);
                memory.fill(GUARD);
                regions.add(
                        new KvRegion(
                                name,
                                positions[i],
                                group.index(),
                                new MemoryRange.Host(memory),
                                shape.blocks(),
                                group.blockBytes(),
                                stride));
            }
        }
        return regions;
    }

    List<KvRegion> regions(int rank) {
        return ranks.get(rank);
    }

    /// The regions of a rank as connectors are told of them.
    List<KvRegion> registered(int rank) {
        return shape.inDevice()
                ? ranks.get(rank).stream().map(HarnessMemory::inDevice).toList()
                : ranks.get(rank);
    }

    /// At an address that is as good as any: nobody may ever use it.
    private static KvRegion inDevice(KvRegion region) {
        return new KvRegion(
                region.layer(),
                region.layerIndex(),
                region.group(),
                new MemoryRange.Device(
                        new DeviceContext(DeviceContext.Api.CUDA, 0, 0),
                        4096,
                        region.memory().length()),
                region.blocks(),
                region.blockBytes(),
                region.strideBytes());
    }

    int blockTokens(int group) {
        return shape.blockTokens(group);
    }

    int layers(int rank) {
        return ranks.get(rank).size();
    }

    /// Overwrites a block everywhere with bytes that nobody may ever read as data.
    void poison(int block) {
        generation[block]++;
        for (var regions : ranks) {
            for (var region : regions) {
                region.block(block).fill(poisonByte(block));
            }
        }
    }

    private byte poisonByte(int block) {
        return (byte) (0x5b ^ block * 7 ^ generation[block] * 29);
    }

    /// Writes what computing tokens `from` to `to` of a request leaves in one layer of one rank.
    void compute(HarnessRequest request, int rank, int layer, int from, int to) {
        var region = ranks.get(rank).get(layer);
        if (shape.isState(region.group())) {
            states(
                    request,
                    region,
                    rank,
                    from,
                    to,
                    (at, value) -> {
                        region.segment().set(ValueLayout.JAVA_BYTE, at, value);
                        return true;
                    });
            return;
        }
        int size = shape.tokenBytes(region.group());
        for (int token = from; token < to; token++) {
            if (block(request, region, token) == BlockTable.NO_BLOCK) {
                continue;
            }
            for (int i = 0; i < size; i++) {
                region.segment()
                        .set(
                                ValueLayout.JAVA_BYTE,
                                offset(request, region, token, i),
                                expected(request, rank, region, token, i));
            }
        }
    }

    private interface StateByte {
        boolean visit(long at, byte value);
    }

    /// Visits every byte of the states that tokens `from` to `to` leave behind: one per block,
    /// after the last of its tokens.
    ///
    /// @return the token of the state at which `visitor` answered false, -1 for none
    private int states(
            HarnessRequest request,
            KvRegion region,
            int rank,
            int from,
            int to,
            StateByte visitor) {
        int tokens = shape.blockTokens(region.group());
        for (int end = from; end < to; ) {
            end = Math.min(to, (end / tokens + 1) * tokens);
            int block = block(request, region, end - 1);
            for (int i = 0; block != BlockTable.NO_BLOCK && i < region.blockBytes(); i++) {
                if (!visitor.visit(
                        region.offset(block) + i, expected(request, rank, region, end - 1, i))) {
                    return end - 1;
                }
            }
        }
        return -1;
    }

    /// Where and how tokens `from` to `to` differ from what they must be; empty when they do not.
    String difference(HarnessRequest request, int rank, int layer, int from, int to) {
        var region = ranks.get(rank).get(layer);
        if (shape.isState(region.group())) {
            int wrong =
                    states(
                            request,
                            region,
                            rank,
                            from,
                            to,
                            (at, value) ->
                                    region.segment().get(ValueLayout.JAVA_BYTE, at) == value);
            return wrong < 0
                    ? ""
                    : "state after token "
                            + wrong
                            + " of "
                            + request.id()
                            + ", rank "
                            + rank
                            + ", layer "
                            + region.layerIndex();
        }
        int size = shape.tokenBytes(region.group());
        for (int token = from; token < to; token++) {
            int block = block(request, region, token);
            if (block == BlockTable.NO_BLOCK) {
                continue;
            }
            for (int i = 0; i < size; i++) {
                byte found =
                        region.segment()
                                .get(ValueLayout.JAVA_BYTE, offset(request, region, token, i));
                byte wanted = expected(request, rank, region, token, i);
                if (found != wanted) {
                    return "token "
                            + token
                            + " of "
                            + request.id()
                            + ", rank "
                            + rank
                            + ", layer "
                            + region.layerIndex()
                            + ", block "
                            + block
                            + ", byte "
                            + i
                            + ": is "
                            + found
                            + ", must be "
                            + wanted
                            + (found == poisonByte(block) ? " (poison: never written)" : "");
                }
            }
        }
        return "";
    }

    /// The same over all ranks and layers.
    String difference(HarnessRequest request, int from, int to) {
        for (int rank = 0; rank < shape.ranks(); rank++) {
            for (int layer = 0; layer < layers(rank); layer++) {
                var found = difference(request, rank, layer, from, to);
                if (!found.isEmpty()) {
                    return found;
                }
            }
        }
        return "";
    }

    /// The same over all ranks and the layers of one group.
    String differenceIn(int group, HarnessRequest request, int from, int to) {
        for (int rank = 0; rank < shape.ranks(); rank++) {
            for (int layer = 0; layer < layers(rank); layer++) {
                if (ranks.get(rank).get(layer).group() == group) {
                    var found = difference(request, rank, layer, from, to);
                    if (!found.isEmpty()) {
                        return found;
                    }
                }
            }
        }
        return "";
    }

    /// Overwrites the request's blocks of tokens `from` to `to` on one rank.
    void spoil(HarnessRequest request, int rank, int from, int to) {
        for (var region : ranks.get(rank)) {
            int tokens = shape.blockTokens(region.group());
            for (int at = from / tokens; at < Math.ceilDiv(to, tokens); at++) {
                int block = request.blocks[region.group()][at];
                if (block != BlockTable.NO_BLOCK) {
                    region.block(block).fill((byte) ~poisonByte(block));
                }
            }
        }
    }

    /// Whether the slots of tokens `from` to `to` still hold poison; the first that does not.
    String unpoisoned(HarnessRequest request, int from, int to) {
        for (int rank = 0; rank < shape.ranks(); rank++) {
            for (var region : ranks.get(rank)) {
                int size = shape.tokenBytes(region.group());
                for (int token = from; token < to; token++) {
                    int block = block(request, region, token);
                    if (block == BlockTable.NO_BLOCK) {
                        continue;
                    }
                    for (int i = 0; i < size; i++) {
                        long at = offset(request, region, token, i);
                        if (region.segment().get(ValueLayout.JAVA_BYTE, at) != poisonByte(block)) {
                            return "slot of token "
                                    + token
                                    + " of "
                                    + request.id()
                                    + " (block "
                                    + block
                                    + ") on rank "
                                    + rank
                                    + ", layer "
                                    + region.layerIndex()
                                    + " was written";
                        }
                    }
                }
            }
        }
        return "";
    }

    /// A free block that no longer holds poison, or a gap that was written to; empty when all is
    /// well.
    String stray(boolean[] free) {
        for (int rank = 0; rank < ranks.size(); rank++) {
            for (var region : ranks.get(rank)) {
                for (int block = 0; block < free.length; block++) {
                    var bytes = region.block(block);
                    if (free[block] && !isFilled(bytes, poisonByte(block))) {
                        return "block "
                                + block
                                + " of rank "
                                + rank
                                + ", layer "
                                + region.layerIndex()
                                + " belongs to nobody and was written to";
                    }
                    if (shape.paddingBytes() > 0 && !isFilled(gap(region, block), GUARD)) {
                        return "the gap after block "
                                + block
                                + " of rank "
                                + rank
                                + ", layer "
                                + region.layerIndex()
                                + " was written to";
                    }
                }
            }
        }
        return "";
    }

    private MemorySegment gap(KvRegion region, int block) {
        return region.segment()
                .asSlice(region.offset(block) + region.blockBytes(), shape.paddingBytes());
    }

    private static boolean isFilled(MemorySegment segment, byte value) {
        long size = segment.byteSize();
        return size == 0
                || segment.get(ValueLayout.JAVA_BYTE, 0) == value
                        && MemorySegment.mismatch(segment, 0, size - 1, segment, 1, size) == -1;
    }

    /// Where byte `index` of a token lies: of all its heads side by side, or in the part of its
    /// head.
    private long offset(HarnessRequest request, KvRegion region, int token, int index) {
        int tokens = shape.blockTokens(region.group());
        int within = token % tokens;
        int size = shape.tokenBytes(region.group());
        long block = region.offset(block(request, region, token));
        if (!shape.layout().isHeadMajor()) {
            return block + (long) within * size + index;
        }
        int headBytes = size / shape.headsPerRank();
        return block
                + (long) (index / headBytes) * tokens * headBytes
                + (long) within * headBytes
                + index % headBytes;
    }

    private int block(HarnessRequest request, KvRegion region, int token) {
        return request.blocks[region.group()][token / shape.blockTokens(region.group())];
    }

    /// A function of the prefix, the layer and the head: the same however the model is divided over
    /// ranks. A state is each rank's own.
    private byte expected(HarnessRequest request, int rank, KvRegion region, int token, int index) {
        int tpRank = rank % shape.tpSize();
        int headBytes =
                shape.isState(region.group())
                        ? Math.toIntExact(region.blockBytes())
                        : shape.tokenBytes(region.group()) / shape.headsPerRank();
        int each = shape.isState(region.group()) ? 1 : shape.headsPerRank();
        int head = tpRank * each + index / headBytes;
        int byteOfHead = index % headBytes;
        long word =
                Mix.mix(
                        request.chain(token)
                                ^ (region.layerIndex() + 1L) * 0x1_0000_01b3L
                                ^ (head + 1L) * 0x2_0000_03a7L
                                ^ (byteOfHead >> 3) * 0x4_0000_0565L);
        return (byte) (word >>> (byteOfHead & 7) * 8);
    }

    /// After the halves were closed: what they provided must still be there.
    @Override
    public void close() {
        arena.close();
        for (var memory : provided) {
            var segment = memory.range().segment();
            assertThat(segment.scope().isAlive())
                    .as("provided memory after the half was closed, before the engine frees it")
                    .isTrue();
            segment.fill(GUARD);
            memory.close();
        }
        provided.clear();
    }
}
