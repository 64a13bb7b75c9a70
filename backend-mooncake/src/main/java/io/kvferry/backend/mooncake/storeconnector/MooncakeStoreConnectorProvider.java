// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.cluster.ClusterStore;
import io.kvferry.spi.Finding;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;

import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/// Keeps KV blocks in a store with Mooncake's semantics: in the memory of this JVM, where other
/// engines of the JVM find them and so does the next engine after this one has ended; in an owner
/// process or in several, where the engines of other processes find them too; or in a Mooncake
/// cluster.
public final class MooncakeStoreConnectorProvider implements KvConnectorProvider {
    /// Its name in configurations, which is vLLM's.
    public static final String NAME = "MooncakeStoreConnector";

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "KV blocks in a store that engines share: in this JVM, in owner processes or in a"
                + " Mooncake cluster";
    }

    @Override
    public List<Finding> diagnose() {
        return Stream.concat(
                        Stream.of(ClusterStore.diagnose()),
                        StoreDiagnosis.of(System.getenv()).stream())
                .toList();
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return StoreOptions.SCHEMA;
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        var options = StoreOptions.SCHEMA.read("options of " + NAME, config.extra());
        StoreOptions.check(options);
        var features =
                EnumSet.of(
                        Feature.CONTENT_ADDRESSED,
                        Feature.RESET,
                        Feature.SEVERAL_GROUPS,
                        Feature.WINDOW_GROUPS,
                        Feature.STATE_GROUPS,
                        Feature.PIPELINE_STAGES,
                        Feature.EVENTS,
                        Feature.HANDSHAKE,
                        Feature.SIGNALS);
        if (StoreOptions.loads(config.role(), options)) {
            features.add(Feature.ASYNC_LOAD);
        }
        if (StoreOptions.saves(config.role(), options)) {
            features.add(Feature.BLOCK_LEASES);
            features.add(Feature.SAVE);
        }
        return new ConnectorCapabilities(features, Optional.empty());
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return new StoreScheduler(context);
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return new StoreWorker(context);
    }
}
