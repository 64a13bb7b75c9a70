// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import io.kvferry.backend.mooncake.p2p.bootstrap.EngineEntry;
import io.kvferry.backend.mooncake.p2p.copy.TpPairing;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.RankInfo;

import java.util.List;

/// What a decoder cannot express in a [Generation] before G5. Prefillers of these generations
/// assume defaults and would write to the wrong addresses, so such requests are refused here.
final class OlderForms {
    private OlderForms() {}

    /// Whether this rank's regions can be described.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG]
    static void requireSayable(Generation generation, List<KvRegion> regions, RankInfo rank) {
        if (generation.tellsStrides()) {
            return;
        }
        for (var region : regions) {
            if (region.strideBytes() != region.blockBytes()) {
                throw cannot(
                        generation,
                        "that something lies between the blocks of layer " + region.layer());
            }
            if (generation.flat() && region.group() > 0) {
                throw cannot(generation, "that there are several KV cache groups");
            }
        }
        if (!generation.namesLayers() && rank.ppSize() > 1) {
            throw cannot(generation, "which layers a pipeline stage has");
        }
        if (generation == Generation.G2
                && regions.stream().mapToLong(KvRegion::blockBytes).distinct().count() > 1) {
            throw cannot(generation, "that block lengths differ");
        }
    }

    /// Whether a prefiller of this form copies what is meant.
    ///
    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE]
    static void requireUnderstood(
            Generation generation, EngineEntry prefiller, RankInfo rank, int kvHeads) {
        if (generation.tellsStrides()) {
            return;
        }
        if (!generation.namesLayers() && prefiller.effectivePpSize() > 1) {
            throw incompatible(
                    generation, "does not say layers, and the prefiller has pipeline stages");
        }
        int theirs = prefiller.effectiveTpSize();
        if (theirs == rank.tpSize()) {
            return;
        }
        if (generation == Generation.G2) {
            throw incompatible(
                    generation,
                    "does not say block lengths, and tensor-parallel sizes differ: "
                            + theirs
                            + " on P and "
                            + rank.tpSize()
                            + " on D");
        }
        boolean split =
                TpPairing.heads(0, theirs, kvHeads).count()
                        != TpPairing.heads(0, rank.tpSize(), kvHeads).count();
        if (split && !prefiller.kvferry()) {
            throw incompatible(
                    generation,
                    "does not say whether a block is K and V in halves, as vLLM's then was, and the"
                            + " prefiller would have to split its heads: tensor-parallel size "
                            + theirs
                            + " on P and "
                            + rank.tpSize()
                            + " on D");
        }
    }

    private static KvFerryException cannot(Generation generation, String what) {
        return new KvFerryException(
                ErrorCode.BAD_CONFIG, "wire_generation=" + generation + " cannot say " + what);
    }

    private static KvFerryException incompatible(Generation generation, String what) {
        return new KvFerryException(
                ErrorCode.INCOMPATIBLE, "a request of wire_generation=" + generation + " " + what);
    }
}
