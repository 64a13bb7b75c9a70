// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.StoreIdentity;

import java.time.Duration;
import java.util.Optional;

/// The contract of stores, run against three owners and a master, with a clock that is moved.
class DirectoryStoreContractTest extends StoreContract {
    private Optional<Owners> owners = Optional.empty();

    /// How many share the store.
    protected int count() {
        return 3;
    }

    @Override
    protected Store open(StoreIdentity identity) {
        if (owners.isEmpty()) {
            owners = Optional.of(new Owners(count(), 64 << 20));
        }
        return owners.get().user(identity);
    }

    @Override
    protected boolean pass(Duration time) {
        owners.ifPresent(running -> running.pass(time));
        return true;
    }

    @Override
    protected void shutDown() {
        owners.ifPresent(Owners::close);
    }
}
