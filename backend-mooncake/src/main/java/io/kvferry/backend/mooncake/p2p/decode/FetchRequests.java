// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import io.kvferry.backend.mooncake.p2p.bootstrap.EngineEntry;
import io.kvferry.backend.mooncake.p2p.bootstrap.WorkerAddress;
import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.copy.TpPairing;
import io.kvferry.backend.mooncake.p2p.plane.DataPlane;
import io.kvferry.backend.mooncake.p2p.plane.HostBackends;
import io.kvferry.backend.mooncake.p2p.plane.RegionMemory;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.p2p.wire.PeerExtension;
import io.kvferry.backend.mooncake.p2p.wire.RequestBlocks;
import io.kvferry.backend.mooncake.p2p.wire.WireRegions;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.te.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.toolkit.bounded.RecentMap;

import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;

/// What one decoder rank asks of which prefiller workers, and which of them keep its layout, so
/// that the short form of a request does.
///
/// Threading: the decode loop.
public final class FetchRequests {
    private static final int MAX_ECHOES = 4096;

    private final EngineInfo engine;
    private final String reader;
    private final WireRegions regions;
    private final int kvHeads;
    private final RankInfo rank;
    private final CacheNamespace namespace;
    private final MooncakeSettings settings;
    private final long layoutId;

    /// Prefiller workers that keep our layout.
    private final Map<String, Boolean> echoed = new RecentMap<>(MAX_ECHOES);

    /// @throws KvFerryException when the configured generation cannot describe the regions
    public FetchRequests(
            DataPlane plane,
            RegionMemory memory,
            int kvHeads,
            RankInfo rank,
            CacheNamespace namespace,
            MooncakeSettings settings) {
        OlderForms.requireSayable(settings.generation(), memory.regions(), rank);
        this.engine = plane.info();
        this.reader = plane instanceof HostBackends ? engine.segmentName() : "";
        this.regions = memory.toWire();
        this.kvHeads = kvHeads;
        this.rank = rank;
        this.namespace = namespace;
        this.settings = settings;
        boolean reuse = settings.layoutReuse() && settings.generation() == Generation.G7;
        this.layoutId = reuse ? (new SecureRandom().nextLong() & Long.MAX_VALUE) | 1 : 0;
    }

    /// Addresses of the workers that hold parts of our blocks.
    ///
    /// @throws KvFerryException when sizes do not divide, a worker is missing, two of them have one
    ///   address, or they would not understand the configured generation
    List<String> workers(EngineEntry prefiller) {
        OlderForms.requireUnderstood(settings.generation(), prefiller, rank, kvHeads);
        var addresses = new ArrayList<String>();
        var byAddress = new HashMap<String, EngineEntry.Rank>();
        for (var wanted : ranks(prefiller)) {
            var address = prefiller.workers().get(wanted);
            if (address == null) {
                throw new KvFerryException(
                        ErrorCode.NOT_FOUND,
                        "prefiller " + prefiller.engineId() + " lists no worker " + wanted);
            }
            var other = byAddress.put(WorkerAddress.canonical(address), wanted);
            if (other != null) {
                var spelled = prefiller.workers().get(other);
                throw new KvFerryException(
                        ErrorCode.INCOMPATIBLE,
                        "prefiller "
                                + prefiller.engineId()
                                + " lists workers "
                                + other
                                + " and "
                                + wanted
                                + " both at "
                                + address
                                + (address.equals(spelled) ? "" : ", also spelled " + spelled)
                                + "; give each worker a side channel address of its own");
            }
            addresses.add(address);
        }
        return List.copyOf(addresses);
    }

    /// The workers that hold parts of our blocks.
    private TreeSet<EngineEntry.Rank> ranks(EngineEntry prefiller) {
        var partners =
                TpPairing.partners(rank.tpRank(), rank.tpSize(), prefiller.effectiveTpSize());
        var ranks = new TreeSet<EngineEntry.Rank>();
        for (int tp = partners.first(); tp < partners.first() + partners.count(); tp++) {
            if (prefiller.effectivePpSize() == rank.ppSize()) {
                ranks.add(new EngineEntry.Rank(tp, rank.ppRank()));
            } else {
                for (int pp = 0; pp < prefiller.effectivePpSize(); pp++) {
                    ranks.add(new EngineEntry.Rank(tp, pp));
                }
            }
        }
        return ranks;
    }

    /// Whether both transfer engines know write capabilities.
    boolean grants(EngineEntry prefiller) {
        return prefiller.grants() && engine.grants();
    }

    /// The full form of a request.
    ///
    /// @param address of the worker that is asked
    XferMetadata message(EngineEntry prefiller, String address, Map<String, Fetch> byRequest) {
        var blocks = new LinkedHashMap<String, RequestBlocks>();
        var grants = new LinkedHashMap<String, Long>();
        byRequest.forEach((request, fetch) -> {
            blocks.put(
                    request, new RequestBlocks(fetch.pull().transferId(), fetch.pull().blocks()));
            fetch.grant().ifPresent(grant -> grants.put(request, grant.token()));
        });
        Optional<PeerExtension> extension =
                prefiller.kvferry()
                        ? Optional.of(
                                new PeerExtension(
                                        HexFormat.of().formatHex(namespace.contentDigest()),
                                        PeerExtension.layout(namespace),
                                        engine.incarnation(),
                                        settings.abortTimeout().toMillis(),
                                        grants,
                                        reader,
                                        worker(prefiller, address)))
                        : Optional.empty();
        return new XferMetadata(
                settings.generation(),
                engine.host(),
                engine.rpcPort(),
                rank.tpSize(),
                rank.tpRank(),
                blocks,
                regions,
                rank.ppSize(),
                layoutId,
                extension);
    }

    /// The worker that is listed at an address. Names are not looked up, so another one may be
    /// there; it refuses then, and does not answer for both.
    private String worker(EngineEntry prefiller, String address) {
        return ranks(prefiller).stream()
                .filter(worker -> address.equals(prefiller.workers().get(worker)))
                .findFirst()
                .map(worker -> PeerExtension.worker(worker.tp(), worker.pp()))
                .orElse("");
    }

    /// Why an answer does not show that its prefiller lays out blocks as we do; empty when it does.
    ///
    /// A kvferry prefiller has compared our layout with its own. vLLM 0.33.0 has the layout that
    /// its connector demands, ours too, and shows what it is by repeating our layout id; older ones
    /// had others.
    Optional<Failure> layoutMismatch(EngineEntry prefiller, long echo) {
        boolean known =
                settings.trustsLayouts()
                        || prefiller.kvferry()
                        || namespace.layout() == KvLayout.LBHNC
                                && layoutId != 0
                                && echo == layoutId;
        return known
                ? Optional.empty()
                : Optional.of(
                        new Failure(
                                ErrorCode.INCOMPATIBLE,
                                "prefiller "
                                        + prefiller.engineId()
                                        + " does not show that its blocks are laid out as ours, "
                                        + namespace.layout()
                                        + (layoutId == 0
                                                ? ": that takes wire_generation=G7 and layout_reuse=true"
                                                : ", by repeating the layout id as vLLM 0.33 does")
                                        + ". If they are alike, say peer_layout=alike"));
    }

    /// Whether the short form does for this worker.
    boolean keepsLayout(String address) {
        return echoed.containsKey(address);
    }

    /// A worker said that it knows a layout now.
    void echo(String address, long id) {
        if (layoutId != 0 && id == layoutId) {
            echoed.put(address, true);
        }
    }

    void forget(String address) {
        echoed.remove(address);
    }
}
