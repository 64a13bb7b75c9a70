// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.spi.Deadline;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/// The contract of stores, run against an owner over its port, with a clock that is moved.
class RemoteStoreContractTest extends StoreContract {
    private final AtomicLong nanos = new AtomicLong();
    private Optional<StoreOwner> owner = Optional.empty();

    @Override
    protected Store open(StoreIdentity identity) {
        if (owner.isEmpty()) {
            var settings =
                    new StoreOwner.Settings(
                            "127.0.0.1",
                            0,
                            64 << 20,
                            StoreConfig.DEFAULT.withChecksums(true).steppedBy(nanos::get),
                            Duration.ofSeconds(60),
                            Optional.empty(),
                            false);
            owner = Optional.of(StoreOwner.start(settings));
        }
        // Limits that do not decide on a busy machine.
        var config =
                new RemoteStoreConfig(
                        owner.get().address(),
                        Optional.empty(),
                        Optional.empty(),
                        false,
                        Duration.ofSeconds(50),
                        Duration.ofSeconds(50));
        var store = RemoteStore.open(config, identity, true);
        var limit = Deadline.in(Duration.ofSeconds(50));
        while (store.healthCheck() != 0 && !limit.passed()) {
            LockSupport.parkNanos(5_000_000);
        }
        return store;
    }

    @Override
    protected boolean pass(Duration time) {
        nanos.addAndGet(time.toNanos());
        owner.ifPresent(running -> running.store().tick());
        return true;
    }

    @Override
    protected void shutDown() {
        owner.ifPresent(StoreOwner::close);
    }
}
