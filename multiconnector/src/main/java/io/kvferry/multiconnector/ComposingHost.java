// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.TransferBackends;

/// Host services with plugin selection: in addition to what every plugin gets, composites use it to
/// select their children. [#with] returns another `ComposingHost`, so an engine can replace the
/// event sink and wake-up without losing the factory.
///
/// Threading: any thread.
public final class ComposingHost implements HostServices {
    private final PluginCatalog catalog;
    private final HostServices services;

    ComposingHost(PluginCatalog catalog, HostServices services) {
        this.catalog = catalog;
        this.services = services;
    }

    /// The connector factory of the given host services.
    ///
    /// @param instance name of the caller, used in the error message
    /// @throws KvFerryException UNAVAILABLE when `host` does not come from a [Kvferry]
    public static ConnectorFactory connectors(String instance, HostServices host) {
        if (host instanceof ComposingHost composing) {
            return composing.connectors();
        }
        throw new KvFerryException(
                ErrorCode.UNAVAILABLE,
                instance
                        + ": this host knows no plugins, so children cannot be found. Open the connector"
                        + " through io.kvferry.multiconnector.Kvferry");
    }

    ConnectorFactory connectors() {
        return new ConnectorFactory(catalog, this);
    }

    @Override
    public EventSink events() {
        return services.events();
    }

    @Override
    public TransferBackends transfers() {
        return services.transfers();
    }

    @Override
    public StagingPool stagingPool() {
        return services.stagingPool();
    }

    @Override
    public void wake() {
        services.wake();
    }

    @Override
    public HostServices with(EventSink events, Runnable engine) {
        return new ComposingHost(catalog, services.with(events, engine));
    }
}
