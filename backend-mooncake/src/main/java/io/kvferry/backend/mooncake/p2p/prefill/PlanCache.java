// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import io.kvferry.backend.mooncake.p2p.copy.CopyPlan;
import io.kvferry.backend.mooncake.p2p.copy.CopyPlanner;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.RecentMap;

import java.util.Map;
import java.util.Optional;

/// The copy plans of the decoders that sent their layout once and refer to it since.
///
/// Threading: the prefill loop.
final class PlanCache {
    private static final int MAX_LAYOUTS = 1024;

    private final CopyPlanner planner;
    private final Map<Key, CopyPlan> layouts = new RecentMap<>(MAX_LAYOUTS);

    private record Key(String segment, int tpRank, int ppSize, int tpSize, long layoutId) {}

    PlanCache(CopyPlanner planner) {
        this.planner = planner;
    }

    /// The plan for a request; empty when it refers to a layout that is not here (any more).
    ///
    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] with a text for the decoder
    Optional<CopyPlan> plan(XferMetadata message) {
        var key =
                new Key(
                        message.segmentName(),
                        message.remoteTpRank(),
                        message.remotePpSize(),
                        message.remoteTpSize(),
                        message.layoutId());
        if (message.regions().size() == 0 && message.layoutId() != 0) {
            return Optional.ofNullable(layouts.get(key));
        }
        var plan = planner.plan(message);
        if (message.layoutId() != 0) {
            layouts.put(key, plan);
        }
        return Optional.of(plan);
    }
}
