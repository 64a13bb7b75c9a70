// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.memory.KvLayout;

import java.util.EnumSet;
import java.util.List;
import java.util.Optional;

/// Derives the capabilities of a composite from those of its children.
public final class CompositeCapabilities {
    private CompositeCapabilities() {}

    /// One child as far as this matters.
    ///
    /// @param produces whether its role lets it save at all
    public record Member(String name, ConnectorCapabilities capabilities, boolean produces) {
        public boolean has(Feature feature) {
            return capabilities.has(feature);
        }

        boolean saves() {
            return produces && has(Feature.SAVE);
        }
    }

    /// Whether loads of `member` may be synchronous (run in the step that uses the blocks). Only if
    /// no other child can save those blocks in the same step, before the load is known to have
    /// succeeded.
    static boolean staysSync(List<Member> members, int member) {
        for (int i = 0; i < members.size(); i++) {
            if (i != member && members.get(i).saves()) {
                return false;
            }
        }
        return true;
    }

    /// @param sync by child: whether its loads may stay synchronous
    static ConnectorCapabilities of(String instance, List<Member> members, boolean[] sync) {
        var features = EnumSet.noneOf(Feature.class);
        for (var feature : Feature.values()) {
            if (claims(feature, members, sync)) {
                features.add(feature);
            }
        }
        return new ConnectorCapabilities(features, layout(instance, members));
    }

    private static boolean claims(Feature feature, List<Member> members, boolean[] sync) {
        return switch (feature) {
            case SYNC_LOAD, LAYERWISE_LOAD -> {
                boolean any = false;
                for (int i = 0; i < members.size(); i++) {
                    any |= members.get(i).has(feature) && sync[i];
                }
                yield any;
            }
            case ASYNC_LOAD -> {
                boolean any = false;
                for (int i = 0; i < members.size(); i++) {
                    any |=
                            members.get(i).has(Feature.ASYNC_LOAD)
                                    || (members.get(i).has(Feature.SYNC_LOAD) && !sync[i]);
                }
                yield any;
            }
            case SAVE,
                    CONTENT_ADDRESSED,
                    HOLD,
                    LAYERWISE_SAVE,
                    BLOCK_LEASES,
                    PROVIDES_MEMORY,
                    HANDSHAKE,
                    EVENTS ->
                    members.stream().anyMatch(member -> member.has(feature));
            case SEVERAL_GROUPS,
                    WINDOW_GROUPS,
                    STATE_GROUPS,
                    PIPELINE_STAGES,
                    DEVICE_REGIONS,
                    SIGNALS ->
                    members.stream().allMatch(member -> member.has(feature));
            // The composite can reset only if every child that keeps data can.
            case RESET ->
                    members.stream().anyMatch(member -> member.has(feature))
                            && members.stream()
                                    .allMatch(member ->
                                            member.has(feature)
                                                    || !member.has(Feature.CONTENT_ADDRESSED));
        };
    }

    private static Optional<KvLayout> layout(String instance, List<Member> members) {
        Optional<KvLayout> required = Optional.empty();
        var by = "";
        for (var member : members) {
            var own = member.capabilities().requiredLayout();
            if (own.isEmpty()) {
                continue;
            }
            if (required.isPresent() && !required.equals(own)) {
                throw new KvFerryException(
                        ErrorCode.INCOMPATIBLE,
                        instance
                                + ": child "
                                + by
                                + " needs KV layout "
                                + required.get()
                                + ", child "
                                + member.name()
                                + " needs "
                                + own.get()
                                + ". They cannot serve one engine; remove one of the two");
            }
            required = own;
            by = member.name();
        }
        return required;
    }
}
