// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk;

import io.kvferry.backend.disk.kv.DiskHalves;
import io.kvferry.backend.disk.kv.DiskOptions;
import io.kvferry.backend.disk.vllm.ExampleExchange;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.exchange.CacheExchange;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;

import java.nio.file.Path;
import java.util.List;

/// Stores KV blocks in a folder and finds them by hash: after a restart, from other engines, and
/// from other machines on a shared file system.
public final class DiskConnectorProvider implements KvConnectorProvider, CacheExchange.Provider {
    /// Its name in configurations.
    public static final String NAME = "DiskConnector";

    private static final String VLLM_FOLDERS = "vllm-example";

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public List<String> aliases() {
        return List.of("ExampleConnector", "SharedStorageConnector");
    }

    @Override
    public String description() {
        return "KV blocks in a folder, checked on every read";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return DiskOptions.SCHEMA;
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return DiskHalves.capabilities(
                config, DiskOptions.SCHEMA.read("options of " + NAME, config.extra()));
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return DiskHalves.scheduler(context);
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return DiskHalves.worker(context);
    }

    @Override
    public List<String> exchangeFormats() {
        return List.of(VLLM_FOLDERS);
    }

    @Override
    public CacheExchange openExchange(WorkerContext context, String format, Path folder) {
        return ExampleExchange.open(context, folder);
    }
}
