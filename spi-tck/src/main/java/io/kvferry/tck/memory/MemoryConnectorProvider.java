// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;

import java.util.EnumSet;
import java.util.Optional;

/// The reference KV connector: a content-addressed store in this JVM, and hand-offs between engines
/// of this JVM.
///
/// Its options choose between the ways a connector can work, so that an engine or a composite can
/// be tested with each of them.
public final class MemoryConnectorProvider implements KvConnectorProvider {
    /// Its name in configurations.
    public static final String NAME = "MemoryConnector";

    private static final OptionSchema OPTIONS =
            OptionSchema.of(
                    Option.of(
                                    "store",
                                    Option.Type.STRING,
                                    "name of the MemoryStore; empty for one of this engine's own")
                            .withDefault(""),
                    Option.choice(
                            "load",
                            "when loaded data is in place",
                            "async",
                            "sync",
                            "layerwise",
                            "none"),
                    Option.choice(
                            "save",
                            "during the step, during the step by layers, in the background, never",
                            "step",
                            "layerwise",
                            "lease",
                            "none"),
                    Option.choice(
                            "hand_off",
                            "how blocks stay for a consumer (do_remote_decode)",
                            "none",
                            "hold",
                            "lease"),
                    Option.choice("memory", "who allocates the cache", "engine", "connector"),
                    Option.of(
                                    "lease",
                                    Option.Type.DURATION,
                                    "how long blocks stay for a save or a consumer")
                            .withDefault("30s")
                            .inRange(0.001, 3600),
                    Option.of(
                                    "queue",
                                    Option.Type.INTEGER,
                                    "transfers of a rank that wait their turn; more are refused")
                            .withDefault("4096")
                            .inRange(1, 1e6),
                    Option.of(
                                    "capacity_blocks",
                                    Option.Type.INTEGER,
                                    "blocks kept per namespace, least recently used go first")
                            .withDefault("100000")
                            .inRange(1, 1e9));

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "KV blocks in the memory of this JVM (reference, for tests)";
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
                        Feature.SEVERAL_GROUPS,
                        Feature.WINDOW_GROUPS,
                        Feature.STATE_GROUPS,
                        Feature.PIPELINE_STAGES,
                        Feature.EVENTS,
                        Feature.RESET,
                        Feature.HANDSHAKE);
        switch (options.string("load")) {
            case "async" -> features.add(Feature.ASYNC_LOAD);
            case "sync" -> features.add(Feature.SYNC_LOAD);
            case "layerwise" -> {
                features.add(Feature.SYNC_LOAD);
                features.add(Feature.LAYERWISE_LOAD);
            }
            default -> {
                // none: never answers a hit
            }
        }
        if (!options.string("save").equals("none")) {
            features.add(Feature.SAVE);
        }
        if (options.string("save").equals("layerwise")) {
            features.add(Feature.LAYERWISE_SAVE);
        }
        if (options.string("memory").equals("connector")) {
            features.add(Feature.PROVIDES_MEMORY);
        }
        boolean leases =
                options.string("save").equals("lease")
                        || options.string("hand_off").equals("lease");
        if (leases) {
            features.add(Feature.BLOCK_LEASES);
        }
        if (options.string("hand_off").equals("hold")) {
            features.add(Feature.HOLD);
        }
        return new ConnectorCapabilities(features, Optional.empty());
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return new MemoryScheduler(context);
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return new MemoryWorker(context);
    }

    /// The store that the options of one half name.
    static MemoryStore store(ConnectorConfig config, OptionValues options) {
        var name = options.string("store");
        return MemoryStore.open(name.isEmpty() ? "of engine " + config.engineId() : name);
    }
}
