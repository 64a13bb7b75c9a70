// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.StoreIdentity;

import java.time.Duration;

/// The contract of stores, run on the client of a Mooncake cluster over the C double of its
/// library.
class ClusterStoreContractTest extends StoreContract {
    private final StoreDouble mooncake = StoreDouble.load();
    private long passed;

    @Override
    protected Store open(StoreIdentity identity) {
        return ClusterStore.open(mooncake.config(), identity);
    }

    @Override
    protected boolean pass(Duration time) {
        passed += time.toMillis();
        mooncake.set(StoreDouble.Knob.CLOCK_MS, passed);
        return true;
    }

    @Override
    protected void shutDown() {
        mooncake.assertClean();
        mooncake.reset();
    }
}
