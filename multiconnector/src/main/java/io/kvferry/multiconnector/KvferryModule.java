// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import com.google.inject.AbstractModule;
import com.google.inject.Provider;
import com.google.inject.Singleton;

import io.kvferry.multiconnector.agent.TransferAgent;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.TransferBackends;
import io.kvferry.toolkit.staging.BuddyStagingPool;

/// The composition root, the only place that knows how the parts are wired.
final class KvferryModule extends AbstractModule {
    private final PluginCatalog catalog;
    private final EventSink events;
    private final BuddyStagingPool staging;

    KvferryModule(PluginCatalog catalog, EventSink events, BuddyStagingPool staging) {
        this.catalog = catalog;
        this.events = events;
        this.staging = staging;
    }

    /// Everything by provider: the classes that Guice generates to call constructors and
    /// `@Provides` methods would make the JVM print a warning about `sun.misc.Unsafe` at each
    /// start.
    @Override
    protected void configure() {
        binder().requireExplicitBindings();
        Provider<ComposingHost> host = getProvider(ComposingHost.class);
        bind(PluginCatalog.class).toInstance(catalog);
        bind(BuddyStagingPool.class).toInstance(staging);
        bind(ComposingHost.class)
                .toProvider(() -> new ComposingHost(catalog, services()))
                .in(Singleton.class);
        bind(HostServices.class).toProvider(host::get);
        bind(ConnectorFactory.class).toProvider(() -> host.get().connectors());
    }

    private HostServices services() {
        TransferBackends transfers =
                (self, choices, ranking, sink) ->
                        TransferAgent.open(
                                TransferAgent.Options.of(self, ranking),
                                catalog,
                                choices,
                                sink,
                                events);
        return HostServices.of(events, transfers, staging, () -> {});
    }
}
