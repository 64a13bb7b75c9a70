// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionValues;

/// Arguments for opening a scheduler half.
///
/// @param instance where it stands in the composition, e.g. `MultiConnector/disk`; names its events
///   and transfers
/// @param options `config.extra()` read against the provider's schema
public record SchedulerContext(
        String instance,
        ConnectorConfig config,
        OptionValues options,
        EngineInfo engine,
        HostServices host) {}
