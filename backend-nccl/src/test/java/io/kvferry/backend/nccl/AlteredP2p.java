// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

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

/// The product, of which a test replaces something.
public class AlteredP2p implements KvConnectorProvider {
    protected final KvConnectorProvider real = new P2pNcclConnectorProvider();

    @Override
    public String name() {
        return real.name();
    }

    @Override
    public String description() {
        return real.description();
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return real.spiVersions();
    }

    @Override
    public OptionSchema options() {
        return real.options();
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return real.capabilities(config, host);
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return real.openScheduler(context);
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return real.openWorker(context);
    }
}
