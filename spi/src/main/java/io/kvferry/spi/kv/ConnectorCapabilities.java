// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;

import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/// Capabilities of a connector, as data. The engine relies on them and the TCK tests them: what is
/// claimed must work, and what is not claimed must never happen.
///
/// @param requiredLayout the only cache layout it can work with; empty for any
public record ConnectorCapabilities(Set<Feature> features, Optional<KvLayout> requiredLayout) {
    /// Optional abilities. The engine calls the methods that belong to one only where it is
    /// claimed.
    public enum Feature {
        /// Answers hits whose data is in place when `beginStep` returns (or
        /// [WorkerConnector#awaitLayer] does).
        SYNC_LOAD,
        /// Answers hits that are loaded while the request waits.
        ASYNC_LOAD,
        /// Stores blocks.
        SAVE,
        /// Finds blocks by their hash, whoever wrote them; without it, by the request's transfer
        /// params.
        CONTENT_ADDRESSED,
        /// May answer [FinishDecision.Hold], and renews it through
        /// [SchedulerConnector#bindBlockPool].
        HOLD,
        /// [WorkerConnector#awaitLayer]: SYNC loads proceed while earlier layers compute.
        LAYERWISE_LOAD,
        /// [WorkerConnector#saveLayer]: each layer is saved as soon as it is computed.
        LAYERWISE_SAVE,
        /// Works with more than one KV cache group.
        SEVERAL_GROUPS,
        /// Works with groups that keep the blocks of a sliding window only.
        WINDOW_GROUPS,
        /// Works with groups of recurrent state, of which a block stands for all tokens before its
        /// end.
        STATE_GROUPS,
        /// Works in an engine whose ranks hold different layers.
        PIPELINE_STAGES,
        /// Works with regions in device memory; without it the engine hands out host regions only.
        DEVICE_REGIONS,
        /// [SchedulerConnector#bindBlockPool]: leases blocks for saves that outlive a step.
        BLOCK_LEASES,
        /// [WorkerHalf#provideMemory]: can provide the cache memory, e.g. pinned or shared.
        PROVIDES_MEMORY,
        /// [WorkerHalf#handshake] and [SchedulerHalf#onHandshakes].
        HANDSHAKE,
        /// Reports [CacheEvent]s, in step reports and through [SchedulerHalf#drainEvents].
        EVENTS,
        /// [SchedulerHalf#resetCache].
        RESET,
        /// Calls [io.kvferry.spi.HostServices#wake] for every completion of its worker halves.
        /// While its transfers are open, the engine waits for the wake-up instead of stepping on a
        /// timer.
        SIGNALS
    }

    public ConnectorCapabilities {
        features = Set.copyOf(features);
    }

    public static ConnectorCapabilities of(Feature... features) {
        return new ConnectorCapabilities(Set.of(features), Optional.empty());
    }

    public boolean has(Feature feature) {
        return features.contains(feature);
    }

    /// Why a connector with these capabilities cannot work in an engine, as the end of a sentence
    /// that begins with its name; empty when it can. Every host asks before it opens one.
    public Optional<String> misfit(EngineInfo engine) {
        var cache = engine.cache();
        int groups = cache.groups().size();
        if (requiredLayout.filter(layout -> !cache.has(layout)).isPresent()) {
            return Optional.of(
                    "needs KV layout "
                            + requiredLayout.get()
                            + ", the engine's is "
                            + layouts(cache)
                            + ". Configure the engine for "
                            + requiredLayout.get()
                            + " or choose another connector");
        }
        if (groups > 1 && !has(Feature.SEVERAL_GROUPS)) {
            return lacks(
                    "works with one KV cache group, this model has " + groups,
                    Feature.SEVERAL_GROUPS);
        }
        if (keeps(cache, KvCacheGroup.Kind.SLIDING_WINDOW) && !has(Feature.WINDOW_GROUPS)) {
            return lacks("works without sliding windows", Feature.WINDOW_GROUPS);
        }
        if (keeps(cache, KvCacheGroup.Kind.RECURRENT_STATE) && !has(Feature.STATE_GROUPS)) {
            return lacks("works without recurrent state", Feature.STATE_GROUPS);
        }
        if (engine.namespace().ppSize() > 1 && !has(Feature.PIPELINE_STAGES)) {
            return lacks(
                    "works where every rank has all layers, this engine has "
                            + engine.namespace().ppSize()
                            + " pipeline stages",
                    Feature.PIPELINE_STAGES);
        }
        return Optional.empty();
    }

    private static Optional<String> lacks(String what, Feature feature) {
        return Optional.of(what + ". Choose a connector that claims " + feature);
    }

    private static boolean keeps(KvCacheSpec cache, KvCacheGroup.Kind kind) {
        return cache.groups().stream().anyMatch(group -> group.kind() == kind);
    }

    private static String layouts(KvCacheSpec cache) {
        return cache.groups().stream()
                .map(KvCacheGroup::format)
                .filter(KvFormat.Heads.class::isInstance)
                .map(format -> ((KvFormat.Heads) format).layout().name())
                .distinct()
                .collect(Collectors.joining(" and "));
    }
}
