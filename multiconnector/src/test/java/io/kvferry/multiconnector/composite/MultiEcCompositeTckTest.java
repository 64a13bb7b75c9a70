// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.tck.ec.EcCompositeContract;

import org.junit.jupiter.api.AfterEach;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/// What a composite for the encoder cache owes its sound children when others fail.
public class MultiEcCompositeTckTest extends EcCompositeContract {
    private final List<Kvferry> open = new ArrayList<>();

    @Override
    protected EcConnectorProvider composite() {
        return new MultiEcConnectorProvider();
    }

    @Override
    protected Map<String, Object> options(List<Child> children) {
        var configs =
                children.stream()
                        .map(child ->
                                Map.of(
                                        "ec_connector",
                                        child.provider().name(),
                                        "ec_connector_extra_config",
                                        child.options()))
                        .toList();
        return Map.of("connectors", configs);
    }

    @Override
    protected HostServices host(List<EcConnectorProvider> plugins) {
        var catalog = PluginCatalog.ofClassPath();
        for (var plugin : plugins) {
            catalog = catalog.with(EcConnectorProvider.class, plugin);
        }
        var kvferry = Kvferry.open(catalog, EventSink.NONE);
        open.add(kvferry);
        return kvferry.services();
    }

    @AfterEach
    void closeKvferry() {
        open.forEach(Kvferry::close);
    }
}
