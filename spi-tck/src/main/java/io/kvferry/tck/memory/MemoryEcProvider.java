// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionType;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerContext;

import java.util.Optional;
import java.util.Set;

/// The reference encoder-cache connector: items in a [MemoryStore].
public final class MemoryEcProvider implements EcConnectorProvider {
    /// Its name in configurations.
    public static final String NAME = "ECMemoryConnector";

    private static final OptionSchema OPTIONS =
            OptionSchema.of(
                    Option.of(
                                    "store",
                                    OptionType.STRING,
                                    "name of the MemoryStore; empty for one of this engine's own")
                            .withDefault(""),
                    Option.choice("load", "when loaded data is in place", "async", "sync"));

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
        boolean async =
                OPTIONS.read("options of " + NAME, config.extra()).string("load").equals("async");
        return new ConnectorCapabilities(
                Set.of(
                        Feature.CONTENT_ADDRESSED,
                        Feature.SAVE,
                        async ? Feature.ASYNC_LOAD : Feature.SYNC_LOAD),
                Optional.empty());
    }

    @Override
    public EcSchedulerConnector openScheduler(SchedulerContext context) {
        return new MemoryEcScheduler(context);
    }

    @Override
    public EcWorkerConnector openWorker(WorkerContext context) {
        return new MemoryEcWorker(context);
    }

    /// The store key of an item: items of another shape under the same hash are other items.
    static String key(EcItem item) {
        return item.embeddings() + "x" + item.width() + ":" + item.hash();
    }
}
