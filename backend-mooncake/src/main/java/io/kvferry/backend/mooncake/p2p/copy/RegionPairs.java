// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.copy;

import static io.kvferry.backend.mooncake.p2p.copy.CopyPlanner.incompatible;

import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.p2p.wire.WireRegions;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.RankInfo;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// Which of a decoder's regions belongs to which of the prefiller's: by layer name and occurrence,
/// checked in index and group, or by position in generations that name no layers.
///
/// Every reason why they do not belong together is [ErrorCode#INCOMPATIBLE] with a text for the
/// decoder.
final class RegionPairs {
    private final List<KvRegion> local;
    private final XferMetadata request;
    private final WireRegions remote;
    private final RankInfo rank;

    /// @param remoteBytes of a block
    record Pair(KvRegion local, long remoteBase, long remoteStride, long remoteBytes) {}

    private RegionPairs(List<KvRegion> local, XferMetadata request, RankInfo rank) {
        this.local = local;
        this.request = request;
        this.remote = request.regions();
        this.rank = rank;
    }

    static List<Pair> of(List<KvRegion> local, XferMetadata request, RankInfo rank) {
        var problem = request.regions().problem(request.generation());
        if (!problem.isEmpty()) {
            throw incompatible(problem);
        }
        var pairs = new RegionPairs(local, request, rank);
        return request.generation().namesLayers() ? pairs.byName() : pairs.byPosition();
    }

    private List<Pair> byPosition() {
        var generation = request.generation();
        if (rank.ppSize() > 1) {
            throw incompatible(
                    "a request of "
                            + generation
                            + " names no layers, which takes one pipeline stage; P has "
                            + rank.ppSize());
        }
        if (local.size() != remote.size()) {
            throw incompatible(
                    "a request of "
                            + generation
                            + " names no layers and so has to list as many regions as P has, "
                            + local.size()
                            + ", not "
                            + remote.size());
        }
        if (generation == Generation.G2) {
            requireOneLength();
        }
        var pairs = new ArrayList<Pair>(local.size());
        for (int i = 0; i < local.size(); i++) {
            pairs.add(pair(local.get(i), i));
        }
        return pairs;
    }

    /// G2 does not say its block length: it is taken for ours, which it can be only for engines
    /// that divide the heads alike.
    private void requireOneLength() {
        if (request.remoteTpSize() != rank.tpSize()) {
            throw incompatible(
                    "a request of G2 does not say its block length, which takes equal"
                            + " tensor-parallel sizes, not "
                            + rank.tpSize()
                            + " on P and "
                            + request.remoteTpSize()
                            + " on D");
        }
        if (local.stream().mapToLong(KvRegion::blockBytes).distinct().count() > 1) {
            throw incompatible("a request of G2 has one block length; regions of P have several");
        }
    }

    private List<Pair> byName() {
        var positions = positions();
        var occurrences = new HashMap<String, Integer>();
        var pairs = new ArrayList<Pair>(local.size());
        for (var region : local) {
            int occurrence = occurrences.merge(region.layer(), 1, Integer::sum) - 1;
            var there = positions.getOrDefault(region.layer(), List.of());
            if (occurrence < there.size()) {
                pairs.add(named(region, there.get(occurrence)));
            } else if (request.remotePpSize() == rank.ppSize()) {
                throw incompatible("D has no region for layer " + region.layer());
            }
        }
        occurrences.forEach((layer, count) -> {
            int there = positions.getOrDefault(layer, List.of()).size();
            if (there > count) {
                throw incompatible(
                        "layer "
                                + layer
                                + " has "
                                + count
                                + " regions on P and "
                                + there
                                + " on D");
            }
        });
        return pairs;
    }

    private Map<String, List<Integer>> positions() {
        var positions = new HashMap<String, List<Integer>>();
        for (int i = 0; i < remote.size(); i++) {
            positions.computeIfAbsent(remote.layerNames().get(i), _ -> new ArrayList<>()).add(i);
        }
        return positions;
    }

    private Pair named(KvRegion region, int position) {
        if (remote.layerIndices().length > 0) {
            check(region, "index", region.layerIndex(), remote.layerIndices()[position]);
        }
        if (remote.groups().length > 0) {
            check(region, "KV cache group", region.group(), remote.groups()[position]);
        }
        return pair(region, position);
    }

    private Pair pair(KvRegion region, int position) {
        long base = remote.baseAddresses()[position];
        return request.generation() == Generation.G2
                ? new Pair(region, base, region.blockBytes(), region.blockBytes())
                : new Pair(
                        region,
                        base,
                        remote.blockLengths()[position],
                        remote.kvBlockLengths()[position]);
    }

    static void check(KvRegion region, String what, long mine, long theirs) {
        if (mine != theirs) {
            throw incompatible(
                    "layer "
                            + region.layer()
                            + ": "
                            + what
                            + " is "
                            + mine
                            + " on P and "
                            + theirs
                            + " on D");
        }
    }
}
