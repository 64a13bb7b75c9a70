// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;

/// What a scheduler half is opened with.
///
/// @param instance where it stands in the composition, e.g. `MultiConnector/disk`; names its events
///   and transfers
/// @param options `config.extra()` read against the provider's schema
/// @param worldSize number of worker ranks, each of which reports every transfer once
/// @param incarnation differs for every start of the engine
public record SchedulerContext(
        String instance,
        ConnectorConfig config,
        OptionValues options,
        CacheNamespace namespace,
        KvCacheSpec cache,
        int worldSize,
        long incarnation,
        HostServices host) {}
