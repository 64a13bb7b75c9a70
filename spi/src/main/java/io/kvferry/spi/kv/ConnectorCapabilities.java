// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.observe.CacheEvent;

import java.util.Optional;
import java.util.Set;

/// What a connector can do, as data. The engine trusts it, the TCK tests it: what is claimed works,
/// what is not claimed never happens.
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
        /// Works with regions in device memory; without it the engine hands out host regions only.
        DEVICE_REGIONS,
        /// [SchedulerConnector#bindBlockPool]: leases blocks for saves that outlive a step.
        BLOCK_LEASES,
        /// [WorkerHalf#provideMemory]: has memory for the cache that it reaches best.
        PROVIDES_MEMORY,
        /// [WorkerHalf#handshake] and [SchedulerHalf#onHandshakes].
        HANDSHAKE,
        /// Reports [CacheEvent]s, in step reports and through [SchedulerHalf#drainEvents].
        EVENTS,
        /// [SchedulerHalf#resetCache].
        RESET,
        /// Calls [io.kvferry.spi.HostServices#wake] for every completion of its worker halves:
        /// while its transfers are open the engine waits for that instead of stepping by the clock.
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
}
