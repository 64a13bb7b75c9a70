// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStores;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.tck.kv.KvConnectorContract;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Nested;

import java.lang.foreign.ValueLayout;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;

/// The contract, run on the store connector.
class MooncakeStoreConnectorTckTest {
    abstract static class OnStore extends KvConnectorContract {
        private final String name = "tck-" + UUID.randomUUID();
        private Optional<HeldStore> held = Optional.empty();

        abstract Map<String, Object> more();

        @Override
        protected KvConnectorProvider provider() {
            return held.<KvConnectorProvider>map(store -> store)
                    .orElseGet(MooncakeStoreConnectorProvider::new);
        }

        @Override
        protected Map<String, Object> options() {
            var options = new HashMap<String, Object>(more());
            options.put("store_name", name);
            options.put("global_segment_size", 4 << 20);
            options.put("save_decode_cache", true);
            options.put("linger", "1s");
            return options;
        }

        private EmbeddedStore store() {
            return EmbeddedStores.find(name).orElseThrow();
        }

        @Override
        protected boolean damageStore() {
            boolean any = false;
            for (var identity : store().identities()) {
                try (var client = store().client(identity)) {
                    var keys = store().keys(identity);
                    var found = new @Nullable ReplicaDescriptor[keys.size()];
                    client.describe(keys, found, new int[keys.size()]);
                    for (var replica : found) {
                        if (replica != null) {
                            var memory = client.memory(replica);
                            long at = replica.length() / 2;
                            byte old = memory.get(ValueLayout.JAVA_BYTE, at);
                            memory.set(ValueLayout.JAVA_BYTE, at, (byte) (old ^ 1));
                            any = true;
                        }
                    }
                }
            }
            return any;
        }

        @Override
        protected boolean stopStore() {
            store().close();
            return true;
        }

        @Override
        protected boolean forgetStore() {
            for (var identity : store().identities()) {
                try (var client = store().client(identity)) {
                    client.removeAll(true);
                }
            }
            return true;
        }

        @Override
        protected Optional<Map<String, Object>> optionsWithBound(int transfers) {
            var options = new HashMap<>(options());
            options.put("max_loads", transfers);
            held = Optional.of(new HeldStore());
            return Optional.of(options);
        }

        @Override
        protected boolean stallStore() {
            held.ifPresent(HeldStore::hold);
            return held.isPresent();
        }

        @Override
        protected void resumeStore() {
            held.ifPresent(HeldStore::release);
        }

        @Override
        protected void releaseStore() {
            EmbeddedStores.closeNow(name);
        }

        /// One store for all copies of the plugin: it stands for a store outside of the process.
        @Override
        protected boolean isSharedClass(String name) {
            return name.startsWith(StoreIdentity.class.getPackageName() + ".");
        }
    }

    @Nested
    class Checked extends OnStore {
        @Override
        Map<String, Object> more() {
            return Map.of();
        }
    }

    @Nested
    class SeveralThreadsAndGroups extends OnStore {
        @Override
        Map<String, Object> more() {
            return Map.of("load_recv_threads", 3, "enable_group_semantics", true);
        }
    }
}
