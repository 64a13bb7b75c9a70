// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import io.kvferry.multiconnector.config.Family;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;

/// Selects the connector for a configuration: finds the provider, validates its options, and checks
/// that it can run on this platform. Composites get the factory from the host services and use it
/// to select their children.
///
/// Threading: any thread.
public final class ConnectorFactory {
    private final PluginCatalog catalog;
    private final HostServices host;

    ConnectorFactory(PluginCatalog catalog, HostServices host) {
        this.catalog = catalog;
        this.host = host;
    }

    /// Selects the KV connector that `config` names.
    ///
    /// @throws KvFerryException NOT_FOUND, PLUGIN_CONFLICT, BAD_CONFIG or UNAVAILABLE, in one
    ///   readable message
    public SelectedKv kv(ConnectorConfig config) {
        return kv(config.connector(), config);
    }

    /// Selects a KV connector that stands at `instance` in a composition.
    public SelectedKv kv(String instance, ConnectorConfig config) {
        var where = Family.KV.key("connector") + " of " + instance;
        var provider = catalog.of(KvConnectorProvider.class).require(where, config.connector());
        var options =
                Selection.options(
                        Family.KV.key("connector_extra_config"), instance, provider, config);
        Selection.checkAvailable(where, provider);
        return new SelectedKv(
                instance, config, provider, options, provider.capabilities(config, host), host);
    }

    /// Selects the encoder-cache connector that `config` names.
    ///
    /// @throws KvFerryException as [#kv]
    public SelectedEc ec(ConnectorConfig config) {
        return ec(config.connector(), config);
    }

    /// Selects an encoder-cache connector that stands at `instance` in a composition.
    public SelectedEc ec(String instance, ConnectorConfig config) {
        var where = Family.EC.key("connector") + " of " + instance;
        var provider = catalog.of(EcConnectorProvider.class).require(where, config.connector());
        var options =
                Selection.options(
                        Family.EC.key("connector_extra_config"), instance, provider, config);
        Selection.checkAvailable(where, provider);
        return new SelectedEc(
                instance, config, provider, options, provider.capabilities(config, host), host);
    }
}
