// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;

import java.util.List;

/// Opens every half from another copy of a plugin: the scheduler half from the first, that of rank
/// `r` from the one after `r`. As in an engine whose workers are other processes, halves see
/// nothing of each other.
public record SplitProvider(List<KvConnectorProvider> copies) implements KvConnectorProvider {
    /// @param copies one more than there are ranks
    public SplitProvider {
        copies = List.copyOf(copies);
    }

    @Override
    public String name() {
        return copies.getFirst().name();
    }

    @Override
    public String description() {
        return copies.getFirst().description();
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return copies.getFirst().spiVersions();
    }

    @Override
    public OptionSchema options() {
        return copies.getFirst().options();
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return copies.getFirst().capabilities(config, host);
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return copies.getFirst().openScheduler(context);
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return copies.get(1 + context.rank().rank()).openWorker(context);
    }
}
