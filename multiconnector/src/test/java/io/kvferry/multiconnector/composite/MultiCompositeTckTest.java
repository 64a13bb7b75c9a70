// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.tck.kv.KvCompositeContract;

import org.junit.jupiter.api.AfterEach;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/// What a composite owes its sound children when others fail.
public class MultiCompositeTckTest extends KvCompositeContract {
    private final List<Kvferry> open = new ArrayList<>();

    @Override
    protected KvConnectorProvider composite() {
        return new MultiConnectorProvider();
    }

    @Override
    protected Map<String, Object> options(List<Child> children) {
        var configs =
                children.stream()
                        .map(child ->
                                Map.of(
                                        "kv_connector",
                                        child.provider().name(),
                                        "kv_connector_extra_config",
                                        child.options()))
                        .toList();
        return Map.of("connectors", configs);
    }

    @Override
    protected HostServices host(List<KvConnectorProvider> plugins) {
        var catalog = PluginCatalog.ofClassPath();
        for (var plugin : plugins) {
            catalog = catalog.with(KvConnectorProvider.class, plugin);
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
