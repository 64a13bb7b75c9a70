// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerContext;

import java.util.EnumSet;
import java.util.Optional;

/// The reference encoder-cache connector: items in a [MemoryStore].
public final class MemoryEcProvider implements EcConnectorProvider {
    /// Its name in configurations.
    public static final String NAME = "ECMemoryConnector";

    private static final OptionSchema OPTIONS =
            OptionSchema.of(
                    Option.of(
                                    "store",
                                    Option.Type.STRING,
                                    "name of the MemoryStore; empty for one of this engine's own")
                            .withDefault(""),
                    Option.choice("load", "when loaded data is in place", "async", "sync"),
                    Option.choice(
                            "hand_off",
                            "whether an ended request's items stay until somebody has loaded them",
                            "none",
                            "hold"),
                    Option.choice(
                            "memory",
                            "who allocates the encoder cache's memory",
                            "engine",
                            "connector"),
                    Option.of("lease", Option.Type.DURATION, "how long items stay for a consumer")
                            .withDefault("30s")
                            .inRange(0.001, 3600));

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "encoder outputs in the memory of this JVM (reference, for tests)";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OPTIONS;
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        var options = OPTIONS.read("options of " + NAME, config.extra());
        var features =
                EnumSet.of(
                        Feature.CONTENT_ADDRESSED,
                        Feature.SAVE,
                        Feature.EVENTS,
                        Feature.RESET,
                        Feature.HANDSHAKE,
                        Feature.SIGNALS);
        features.add(
                options.string("load").equals("async") ? Feature.ASYNC_LOAD : Feature.SYNC_LOAD);
        if (options.string("hand_off").equals("hold")) {
            features.add(Feature.HOLD);
        }
        if (options.string("memory").equals("connector")) {
            features.add(Feature.PROVIDES_MEMORY);
        }
        return new ConnectorCapabilities(features, Optional.empty());
    }

    @Override
    public EcSchedulerConnector openScheduler(SchedulerContext context) {
        return new MemoryEcScheduler(context);
    }

    @Override
    public EcWorkerConnector openWorker(WorkerContext context) {
        return new MemoryEcWorker(context);
    }

    /// The store key of an item: another shape under the same hash is another item.
    static String key(EcItem item) {
        return item.embeddings() + "x" + item.width() + ":" + item.hash();
    }
}
