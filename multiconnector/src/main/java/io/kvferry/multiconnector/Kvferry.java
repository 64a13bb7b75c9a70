// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import com.google.inject.Guice;
import com.google.inject.Injector;
import com.google.inject.Stage;

import io.kvferry.multiconnector.config.ConfigText;
import io.kvferry.multiconnector.config.ConnectorConfigReader;
import io.kvferry.multiconnector.config.Family;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import java.util.TreeMap;

/// The entry for an engine:
///
/// ```java
/// try (var kvferry = Kvferry.open(PluginCatalog.ofClassPath(), EventSink.NONE)) {
///     var connector = kvferry.kv("""
///             {"kv_connector": "DiskConnector", "kv_role": "kv_both",
///              "kv_connector_extra_config": {"path": "/var/cache/kv"}}""");
///     var scheduler = connector.openScheduler(engineInfo);
///     var worker = connector.openWorker(engineInfo, RankInfo.SINGLE);
/// }
/// ```
///
/// Close the scheduler and worker halves before closing this object, which closes the plugins'
/// class loaders.
///
/// Threading: any thread.
public final class Kvferry implements AutoCloseable {
    /// Default size of the staging pool, in bytes. Allocated when a plugin first requests staging
    /// memory.
    public static final long STAGING_BYTES = 256L << 20;

    private final Injector injector;

    private Kvferry(Injector injector) {
        this.injector = injector;
    }

    /// Wires everything up. Opens no plugin.
    ///
    /// @param catalog where plugins come from; closed with this object
    /// @param events hears what plugins decide and what befalls them
    public static Kvferry open(PluginCatalog catalog, EventSink events) {
        return open(catalog, events, STAGING_BYTES);
    }

    /// The same with a staging pool of that many bytes, rounded up to a power of two.
    public static Kvferry open(PluginCatalog catalog, EventSink events, long stagingBytes) {
        var staging = new BuddyStagingPool(stagingBytes);
        return new Kvferry(
                Guice.createInjector(
                        Stage.PRODUCTION, new KvferryModule(catalog, events, staging)));
    }

    /// The plugins that can be selected.
    public PluginCatalog plugins() {
        return injector.getInstance(PluginCatalog.class);
    }

    /// The services that plugins are offered. An engine passes it on, with its own events and
    /// wake-up ([HostServices#with]).
    public HostServices services() {
        return injector.getInstance(HostServices.class);
    }

    /// Selects connectors for configurations that are parsed already.
    public ConnectorFactory connectors() {
        return injector.getInstance(ConnectorFactory.class);
    }

    /// Reads vLLM's `--kv-transfer-config` JSON and selects the connector.
    ///
    /// @throws KvFerryException when anything about it is wrong, in one readable message
    public SelectedKv kv(String json) {
        return connectors().kv(ConnectorConfigReader.read(Family.KV, json));
    }

    /// Selects the connector of such a configuration; messages say where it stands.
    public SelectedKv kv(ConfigText text) {
        return connectors().kv(ConnectorConfigReader.read(Family.KV, text));
    }

    /// Selects the KV connector of a configuration.
    public SelectedKv kv(ConnectorConfig config) {
        return connectors().kv(config);
    }

    /// Reads vLLM's `--ec-transfer-config` JSON and selects the connector.
    ///
    /// @throws KvFerryException when anything about it is wrong, in one readable message
    public SelectedEc ec(String json) {
        return connectors().ec(ConnectorConfigReader.read(Family.EC, json));
    }

    /// Selects the connector of such a configuration; messages say where it stands.
    public SelectedEc ec(ConfigText text) {
        return connectors().ec(ConnectorConfigReader.read(Family.EC, text));
    }

    /// Selects the encoder-cache connector of a configuration.
    public SelectedEc ec(ConnectorConfig config) {
        return connectors().ec(config);
    }

    /// Frees the staging pool, reports leases that were not returned, and closes the class loaders
    /// of the plugin folder. Idempotent.
    @Override
    public void close() {
        var staging = injector.getInstance(BuddyStagingPool.class);
        var held = new TreeMap<String, String>();
        staging.held().forEach((owner, bytes) -> held.put(owner, bytes + " bytes"));
        if (!held.isEmpty()) {
            services().events().emit(new TraceEvent.Incident("", "staging-leak", "host", held));
        }
        staging.close();
        plugins().close();
    }
}
