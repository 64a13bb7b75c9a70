// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.BackendCapabilities.Threading;

import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;

/// The capabilities that an agent can claim, given those of its backends. A claim about all
/// transfers has to hold for every backend that may do one.
final class AgentCapabilities {
    private AgentCapabilities() {}

    static BackendCapabilities of(List<BackendCapabilities> parts, TransferAgent.Loops loops) {
        var routes = new HashSet<Route>();
        parts.forEach(part -> routes.addAll(part.routes()));
        boolean stepped =
                loops == TransferAgent.Loops.CALLER
                        && parts.stream().anyMatch(part -> part.threading() == Threading.CONFINED);
        return new BackendCapabilities(
                routes,
                features(parts, routes, stepped),
                stepped ? Threading.CONFINED : Threading.CONCURRENT,
                Integer.MAX_VALUE, // what is more than a part takes is split
                Long.MAX_VALUE,
                alignment(parts, routes));
    }

    private static Set<Feature> features(
            List<BackendCapabilities> parts, Set<Route> routes, boolean stepped) {
        var features = EnumSet.noneOf(Feature.class);
        for (var feature : Feature.values()) {
            boolean claimed =
                    switch (feature) {
                        case CANCEL, PER_DESCRIPTOR_RESULTS, APPLIED_ON_COMPLETION, CHECKSUM ->
                                parts.stream().allMatch(part -> part.has(feature));
                        case SELF_MANAGED_METADATA ->
                                parts.stream()
                                        .filter(part -> part.routes().stream().anyMatch(remote()))
                                        .allMatch(part -> part.has(feature));
                        // A transfer that announces goes by a part that can.
                        case NOTIFY ->
                                routes.stream().anyMatch(remote())
                                        && routes.stream()
                                                .filter(remote())
                                                .allMatch(route -> notifies(parts, route));
                        // The agent's own loops poll, unless the caller steps them.
                        case NEEDS_TARGET_PROGRESS ->
                                stepped && parts.stream().anyMatch(part -> part.has(feature));
                        case QUERY -> parts.stream().anyMatch(part -> part.has(feature));
                    };
            if (claimed) {
                features.add(feature);
            }
        }
        return features;
    }

    private static Predicate<Route> remote() {
        return route -> route.scope() == Route.Scope.REMOTE;
    }

    private static boolean notifies(List<BackendCapabilities> parts, Route route) {
        return parts.stream()
                .anyMatch(part -> part.routes().contains(route) && part.has(Feature.NOTIFY));
    }

    /// The alignment that suffices on every route; on each, that of the least demanding part.
    private static int alignment(List<BackendCapabilities> parts, Set<Route> routes) {
        return routes.stream()
                .mapToInt(route ->
                        parts.stream()
                                .filter(part -> part.routes().contains(route))
                                .mapToInt(BackendCapabilities::alignment)
                                .min()
                                .orElse(1))
                .max()
                .orElse(1);
    }
}
