// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.tck.faults.FaultPlan;
import io.kvferry.tck.faults.FaultPlan.Fault;
import io.kvferry.tck.faults.FaultyConnector;
import io.kvferry.tck.kv.KvConnectorContract;
import io.kvferry.tck.memory.MemoryConnectorProvider;
import io.kvferry.tck.memory.MemoryStore;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Nested;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;

/// A composite is a connector like any other: the contract, run on composites of in-memory
/// connectors.
class MultiConnectorTckTest {
    abstract static class OnComposite extends KvConnectorContract {
        private final String name = "tck-" + UUID.randomUUID();
        private final List<MemoryStore> stores = new ArrayList<>();
        private final Kvferry kvferry = Kvferry.open(catalog(), EventSink.NONE);

        PluginCatalog catalog() {
            return PluginCatalog.ofClassPath();
        }

        @Override
        protected KvConnectorProvider provider() {
            return new MultiConnectorProvider();
        }

        @Override
        protected boolean standsAlone() {
            return false; // the factory of its children is one of its own classes
        }

        @Override
        protected boolean halvesCanBeSplit() {
            return true;
        }

        /// Each half has its own composite; what finds and opens children is the host's.
        @Override
        protected boolean isSharedClass(String className) {
            return !className.startsWith("io.kvferry.multiconnector.composite.");
        }

        @Override
        protected HostServices host() {
            return kvferry.services();
        }

        @AfterEach
        void closeKvferry() {
            kvferry.close();
        }

        /// A child with a store of its own that the engines of the test share.
        final Map<String, Object> child(String load, String save, String handOff) {
            var storeName = name + "-" + stores.size();
            stores.add(MemoryStore.open(storeName));
            var options =
                    new HashMap<String, Object>(
                            Map.of("store", storeName, "load", load, "save", save));
            options.put("hand_off", handOff);
            return Map.of("kv_connector", "MemoryConnector", "kv_connector_extra_config", options);
        }

        final Map<String, Object> child(String load, String save) {
            return child(load, save, "none");
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
        protected boolean stallStore() {
            stores.forEach(store -> store.setStalled(true));
            return true;
        }

        @Override
        protected void resumeStore() {
            stores.forEach(store -> store.setStalled(false));
        }

        @Override
        protected boolean forgetStore() {
            stores.forEach(MemoryStore::clear);
            return true;
        }

        @Override
        protected void releaseStore() {
            stores.forEach(MemoryStore::close);
        }
    }

    @Nested
    class OnlyChild extends OnComposite {
        private final Map<String, Object> child = child("async", "lease");

        @Override
        protected Map<String, Object> options() {
            return Map.of("connectors", List.of(child));
        }

        /// The bound is the child's: what one child refuses, another is tried for.
        @Override
        protected Optional<Map<String, Object>> optionsWithBound(int transfers) {
            var options = new HashMap<Object, Object>();
            options.putAll((Map<?, ?>) child.get("kv_connector_extra_config"));
            options.put("queue", transfers);
            var bounded = new HashMap<>(child);
            bounded.put("kv_connector_extra_config", options);
            return Optional.of(Map.of("connectors", List.of(bounded)));
        }
    }

    @Nested
    class OnlyLayerwiseChild extends OnComposite {
        @Override
        protected Map<String, Object> options() {
            return Map.of("connectors", List.of(child("layerwise", "layerwise")));
        }
    }

    @Nested
    class TwoStores extends OnComposite {
        @Override
        protected Map<String, Object> options() {
            return Map.of("connectors", List.of(child("async", "step"), child("async", "lease")));
        }
    }

    @Nested
    class LayerwiseBesideAnotherStore extends OnComposite {
        @Override
        protected boolean savesOnlyByLayers() {
            return false;
        }

        @Override
        protected Map<String, Object> options() {
            return Map.of(
                    "load_policy",
                    "longest-hit",
                    "connectors",
                    List.of(child("layerwise", "layerwise"), child("sync", "step")));
        }
    }

    @Nested
    class NestedAndComposed extends OnComposite {
        @Override
        protected Map<String, Object> options() {
            var inner =
                    Map.of(
                            "kv_connector",
                            "MultiConnector",
                            "name",
                            "inner",
                            "kv_connector_extra_config",
                            Map.of(
                                    "connectors",
                                    List.of(child("none", "step"), child("async", "lease"))));
            return Map.of(
                    "load_policy", "compose", "connectors", List.of(inner, child("sync", "step")));
        }
    }

    @Nested
    class HandsOffBesideAStore extends OnComposite {
        @Override
        protected Map<String, Object> options() {
            return Map.of(
                    "connectors", List.of(child("async", "none", "hold"), child("async", "step")));
        }

        @Override
        protected boolean damageStore() {
            return false; // a hand-off is never at rest
        }
    }

    /// The first child throws, fails loads, loads half and comes late; the second makes good what
    /// it does not do.
    @Nested
    class BesideAFaultyChild extends OnComposite {
        private static final long SEED = Long.getLong("kvferry.tck.seed", 20_261_121L);

        @Override
        PluginCatalog catalog() {
            var plan =
                    FaultPlan.seeded(SEED)
                            .with(Fault.THROW, 0.01)
                            .with(Fault.FAIL, 0.2)
                            .with(Fault.TRUNCATE, 0.2)
                            .with(Fault.DELAY, 0.2);
            var faulty = FaultyConnector.wrap("Faulty", new MemoryConnectorProvider(), plan);
            return PluginCatalog.ofClassPath().with(KvConnectorProvider.class, faulty);
        }

        @Override
        protected Map<String, Object> options() {
            var faulty = new HashMap<>(child("async", "step"));
            faulty.put("kv_connector", "Faulty");
            // While the first child is off it misses saves; asked first, it would hide for good
            // that the second has more.
            return Map.of(
                    "connectors",
                    List.of(faulty, child("async", "step")),
                    "load_policy",
                    "longest-hit");
        }
    }
}
