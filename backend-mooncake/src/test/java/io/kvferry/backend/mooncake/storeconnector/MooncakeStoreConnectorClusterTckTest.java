// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.cluster.StoreDouble;
import io.kvferry.backend.mooncake.store.cluster.StoreDouble.Knob;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.tck.kv.KvConnectorContract;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/// The contract, run on the store connector with a Mooncake cluster: the C double of its library.
class MooncakeStoreConnectorClusterTckTest extends KvConnectorContract {
    private static final int RPC_FAIL = -900;

    private final StoreDouble mooncake = StoreDouble.load();
    private Optional<HeldStore> held = Optional.empty();

    @Override
    protected KvConnectorProvider provider() {
        return held.<KvConnectorProvider>map(store -> store)
                .orElseGet(MooncakeStoreConnectorProvider::new);
    }

    @Override
    protected Map<String, Object> options() {
        return Map.of(
                "store",
                "mooncake://127.0.0.1:50051",
                "library",
                mooncake.file().toString(),
                "rpc_timeout",
                "30s", // a busy machine is no dead master
                "lookup_timeout",
                "30s",
                "save_decode_cache",
                true);
    }

    @Override
    protected boolean damageStore() {
        return mooncake.damage() > 0;
    }

    @Override
    protected boolean stopStore() {
        mooncake.set(Knob.FAIL_CALL, RPC_FAIL);
        return true;
    }

    @Override
    protected boolean forgetStore() {
        mooncake.reset();
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
        mooncake.assertClean();
        mooncake.reset();
    }
}
