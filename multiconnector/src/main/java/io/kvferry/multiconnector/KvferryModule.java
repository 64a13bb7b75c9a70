// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import com.google.inject.AbstractModule;
import com.google.inject.Provider;
import com.google.inject.Singleton;

import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.observe.EventSink;

import java.util.Optional;

/// The composition root, the only place that knows how the parts are wired.
final class KvferryModule extends AbstractModule {
    private final PluginCatalog catalog;
    private final HostServices embedder;

    KvferryModule(PluginCatalog catalog, HostServices embedder) {
        this.catalog = catalog;
        this.embedder = embedder;
    }

    /// Everything by provider: the classes that Guice generates to call constructors and
    /// `@Provides` methods would make the JVM print a warning about `sun.misc.Unsafe` at each
    /// start.
    @Override
    protected void configure() {
        binder().requireExplicitBindings();
        Provider<PluginCatalog> plugins = getProvider(PluginCatalog.class);
        Provider<HostServices> host = getProvider(HostServices.class);
        Provider<ConnectorFactory> factory = getProvider(ConnectorFactory.class);
        bind(PluginCatalog.class).toInstance(catalog);
        bind(HostServices.class)
                .toProvider(() -> hostServices(plugins, factory))
                .in(Singleton.class);
        bind(ConnectorFactory.class)
                .toProvider(() -> new ConnectorFactory(plugins.get(), host.get()))
                .in(Singleton.class);
    }

    /// What plugins see of the host: the embedder's services, and the factory by which composites
    /// open children.
    private HostServices hostServices(
            Provider<PluginCatalog> plugins, Provider<ConnectorFactory> factory) {
        return new HostServices() {
            @Override
            public EventSink events() {
                return embedder.events();
            }

            @Override
            public <T> Optional<T> find(Class<T> service) {
                if (service == ConnectorFactory.class) {
                    return Optional.of(service.cast(factory.get()));
                }
                return service == PluginCatalog.class
                        ? Optional.of(service.cast(plugins.get()))
                        : embedder.find(service);
            }
        };
    }
}
