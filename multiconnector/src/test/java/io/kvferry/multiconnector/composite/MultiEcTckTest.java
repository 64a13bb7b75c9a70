// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.tck.ec.EcConnectorContract;
import io.kvferry.tck.memory.MemoryEcProvider;
import io.kvferry.tck.memory.MemoryStore;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Nested;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/// The encoder-cache contract, run on composites of in-memory connectors.
class MultiEcTckTest {
    abstract static class OnComposite extends EcConnectorContract {
        private final String name = "tck-" + UUID.randomUUID();
        private final List<MemoryStore> stores = new ArrayList<>();
        private final Kvferry kvferry = Kvferry.open(PluginCatalog.ofClassPath(), EventSink.NONE);

        @Override
        protected EcConnectorProvider provider() {
            return new MultiEcConnectorProvider();
        }

        @Override
        protected boolean standsAlone() {
            return false; // the factory of its children is one of its own classes
        }

        @Override
        protected HostServices host() {
            return kvferry.services();
        }

        @AfterEach
        void closeKvferry() {
            kvferry.close();
        }

        final Map<String, Object> child(String load) {
            return child(load, "none");
        }

        final Map<String, Object> child(String load, String handOff) {
            var storeName = name + "-" + stores.size();
            stores.add(MemoryStore.open(storeName));
            return Map.of(
                    "ec_connector",
                    new MemoryEcProvider().name(),
                    "ec_connector_extra_config",
                    Map.of("store", storeName, "load", load, "hand_off", handOff));
        }

        @Override
        protected boolean damageStore() {
            stores.forEach(MemoryStore::corrupt);
            return true;
        }

        @Override
        protected boolean stopStore() {
            stores.forEach(store -> store.setDown(true));
            return true;
        }

        @Override
        protected void releaseStore() {
            stores.forEach(MemoryStore::close);
        }
    }

    @Nested
    class OnlyChild extends OnComposite {
        @Override
        protected Map<String, Object> options() {
            return Map.of("connectors", List.of(child("async")));
        }
    }

    @Nested
    class TwoStores extends OnComposite {
        @Override
        protected Map<String, Object> options() {
            return Map.of("connectors", List.of(child("sync"), child("async")));
        }
    }

    @Nested
    class OneHolds extends OnComposite {
        @Override
        protected Map<String, Object> options() {
            return Map.of("connectors", List.of(child("async", "hold"), child("sync")));
        }
    }
}
