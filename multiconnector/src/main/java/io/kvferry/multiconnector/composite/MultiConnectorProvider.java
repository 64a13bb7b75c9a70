// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.multiconnector.ConnectorFactory;
import io.kvferry.multiconnector.SelectedKv;
import io.kvferry.multiconnector.composite.scheduler.MultiScheduler;
import io.kvferry.multiconnector.composite.worker.MultiWorker;
import io.kvferry.multiconnector.config.Family;
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

/// `MultiConnector` for KV: several connectors as one. The package description says how.
public final class MultiConnectorProvider implements KvConnectorProvider {
    static final String NAME = "MultiConnector";

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "several KV connectors as one: loads from the best, saves to all";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return CompositeOptions.SCHEMA;
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return compose(NAME, config, host).capabilities(NAME);
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        var composition = compose(context.instance(), context.config(), context.host());
        var children =
                composition.openSchedulers(context, (child, engine) -> child.openScheduler(engine));
        return new MultiScheduler(children, composition.options(), composition.staysSync());
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        var composition = compose(context.instance(), context.config(), context.host());
        var children =
                composition.openWorkers(
                        context, (child, engine) -> child.openWorker(engine, context.rank()));
        return new MultiWorker(children, context.host().events());
    }

    private static Composition<SelectedKv> compose(
            String instance, ConnectorConfig config, HostServices host) {
        return Composition.of(
                Family.KV, instance, config, host, ConnectorFactory::kv, SelectedKv::capabilities);
    }
}
