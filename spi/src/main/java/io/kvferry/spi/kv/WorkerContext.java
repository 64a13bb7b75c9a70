// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.RankInfo;

/// Arguments for opening a worker half; the fields as in [SchedulerContext].
///
/// @param rank which of the engine's workers this is
public record WorkerContext(
        String instance,
        ConnectorConfig config,
        OptionValues options,
        EngineInfo engine,
        RankInfo rank,
        HostServices host) {}
