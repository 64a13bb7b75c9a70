// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;

import java.util.EnumSet;
import java.util.Optional;

/// Opens the halves that the options ask for.
public final class DiskHalves {
    private DiskHalves() {}

    public static ConnectorCapabilities capabilities(ConnectorConfig config, OptionValues options) {
        var features =
                EnumSet.of(
                        Feature.CONTENT_ADDRESSED,
                        Feature.RESET,
                        Feature.SEVERAL_GROUPS,
                        Feature.WINDOW_GROUPS,
                        Feature.STATE_GROUPS,
                        Feature.PIPELINE_STAGES,
                        Feature.EVENTS,
                        Feature.SIGNALS);
        if (config.role().consumes()) {
            switch (options.string("load")) {
                case "async" -> features.add(Feature.ASYNC_LOAD);
                case "sync" -> features.add(Feature.SYNC_LOAD);
                default -> {
                    // none: never answers a hit
                }
            }
        }
        if (saves(config, options)) {
            features.add(Feature.BLOCK_LEASES);
            features.add(Feature.SAVE);
        }
        return new ConnectorCapabilities(features, Optional.empty());
    }

    public static SchedulerConnector scheduler(SchedulerContext context) {
        return new DiskScheduler(context);
    }

    public static WorkerConnector worker(WorkerContext context) {
        return new DiskWorker(context);
    }

    private static boolean saves(ConnectorConfig config, OptionValues options) {
        return config.role().produces() && options.string("save").equals("lease");
    }
}
