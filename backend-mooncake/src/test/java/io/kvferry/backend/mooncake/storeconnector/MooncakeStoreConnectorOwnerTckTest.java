// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedClient;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.tck.kv.KvConnectorContract;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// The contract, run on the store connector with an owner that it reaches over its port.
class MooncakeStoreConnectorOwnerTckTest extends KvConnectorContract {
    private Optional<StoreOwner> owner = Optional.empty();
    private Optional<HeldStore> held = Optional.empty();

    @Override
    protected KvConnectorProvider provider() {
        return held.<KvConnectorProvider>map(store -> store)
                .orElseGet(MooncakeStoreConnectorProvider::new);
    }

    private StoreOwner owner() {
        if (owner.isEmpty()) {
            owner = Optional.of(StoreOwner.start(StoreOwner.Settings.local(0, 4 << 20)));
        }
        return owner.get();
    }

    @Override
    protected Map<String, Object> options() {
        var options = new HashMap<String, Object>();
        options.put("store", owner().address());
        options.put("rpc_timeout", "30s"); // a busy machine is no dead owner
        options.put("save_decode_cache", true);
        return options;
    }

    @Override
    protected boolean damageStore() {
        boolean any = false;
        for (StoreIdentity identity : owner().store().identities()) {
            try (EmbeddedClient client = owner().store().client(identity)) {
                for (String key : owner().store().keys(identity)) {
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
        owner().close();
        return true;
    }

    @Override
    protected boolean forgetStore() {
        for (StoreIdentity identity : owner().store().identities()) {
            try (EmbeddedClient client = owner().store().client(identity)) {
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
        resumeStore();
        owner.ifPresent(StoreOwner::close);
        owner = Optional.empty();
    }
}
