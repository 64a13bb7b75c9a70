// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedClient;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.master.OwnerMembership;
import io.kvferry.backend.mooncake.store.master.StandingMaster;
import io.kvferry.backend.mooncake.store.master.StoreMaster;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.tck.kv.KvConnectorContract;

import org.junit.jupiter.api.Nested;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// The contract, run on the store connector with owners that it reaches over their ports: one that
/// it is told of, and several that a master lists.
class MooncakeStoreConnectorOwnerTckTest {
    abstract static class OverOwners extends KvConnectorContract {
        private static final long BYTES = 4 << 20;

        private final List<StoreOwner> owners = new ArrayList<>();
        private Optional<HeldStore> held = Optional.empty();

        /// Starts the owners, unless they run.
        ///
        /// @return what the option `store` says
        abstract String store();

        final List<StoreOwner> owners() {
            return owners;
        }

        final StoreOwner addOwner() {
            var owner = StoreOwner.start(StoreOwner.Settings.local(0, BYTES));
            owners.add(owner);
            return owner;
        }

        @Override
        protected KvConnectorProvider provider() {
            return held.<KvConnectorProvider>map(store -> store)
                    .orElseGet(MooncakeStoreConnectorProvider::new);
        }

        @Override
        protected Map<String, Object> options() {
            var options = new HashMap<String, Object>();
            options.put("store", store());
            options.put("rpc_timeout", "30s"); // a busy machine is no dead owner
            options.put("lookup_timeout", "30s");
            options.put("save_decode_cache", true);
            return options;
        }

        @Override
        protected boolean damageStore() {
            boolean any = false;
            for (StoreOwner owner : owners) {
                any |= damage(owner.store());
            }
            return any;
        }

        private static boolean damage(EmbeddedStore store) {
            boolean any = false;
            for (StoreIdentity identity : store.identities()) {
                try (EmbeddedClient client = store.client(identity)) {
                    for (String key : store.keys(identity)) {
                        try (var pinned = client.pin(List.of(key))) {
                            MemorySegment memory = pinned.memory(0);
                            long at = memory.byteSize() / 2;
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
            owners.forEach(StoreOwner::close);
            return true;
        }

        @Override
        protected boolean forgetStore() {
            for (StoreOwner owner : owners) {
                for (StoreIdentity identity : owner.store().identities()) {
                    try (EmbeddedClient client = owner.store().client(identity)) {
                        client.removeAll(true);
                    }
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
            stopStore();
            owners.clear();
        }
    }

    @Nested
    class OneOwner extends OverOwners {
        @Override
        String store() {
            return owners().isEmpty() ? addOwner().address() : owners().getFirst().address();
        }
    }

    /// `store: master://HOST:PORT`
    @Nested
    class OwnersOfAMaster extends OverOwners {
        private static final int OWNERS = 2;

        private final List<OwnerMembership> memberships = new ArrayList<>();
        private Optional<StoreMaster> master = Optional.empty();

        @Override
        String store() {
            if (master.isEmpty()) {
                master = Optional.of(StandingMaster.start());
                var config = RemoteStoreConfig.of(master.get().address());
                for (int i = 0; i < OWNERS; i++) {
                    memberships.add(OwnerMembership.start(config, addOwner()));
                }
            }
            return RemoteStoreConfig.MASTER_AT + master.get().address();
        }

        @Override
        protected boolean stopStore() {
            memberships.forEach(OwnerMembership::close);
            memberships.clear();
            master.ifPresent(StoreMaster::close);
            return super.stopStore();
        }

        @Override
        protected void releaseStore() {
            super.releaseStore();
            master = Optional.empty();
        }
    }
}
