// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.master.MasterView;
import io.kvferry.backend.mooncake.store.master.OwnerMembership;
import io.kvferry.backend.mooncake.store.master.StandingMaster;
import io.kvferry.backend.mooncake.store.master.StoreMaster;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.spi.Deadline;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// A master, whose time stands still, and owners in this process, with one clock that is moved.
final class Owners implements AutoCloseable {
    static final Duration LONG = Duration.ofSeconds(50);

    private final AtomicLong nanos = new AtomicLong();
    private final long bytes;
    private final List<StoreOwner> owners = new ArrayList<>();
    private final List<OwnerMembership> memberships = new ArrayList<>();
    private Duration sessions = Duration.ofSeconds(60);
    private Optional<StoreMaster> master;

    Owners(int count, long bytes) {
        this.bytes = bytes;
        this.master = Optional.of(StandingMaster.start());
        for (int i = 0; i < count; i++) {
            add(0);
        }
        await("all are listed", () -> MasterView.ask(config()).size() == count);
    }

    /// Starts one more.
    ///
    /// @return its number
    int add(int port) {
        var owner =
                StoreOwner.start(
                        new StoreOwner.Settings(
                                "127.0.0.1",
                                port,
                                bytes,
                                StoreConfig.DEFAULT.withChecksums(true).steppedBy(nanos::get),
                                sessions,
                                Optional.empty(),
                                false));
        owners.add(owner);
        memberships.add(OwnerMembership.start(config(), owner));
        return owners.size() - 1;
    }

    StoreOwner owner(int number) {
        return owners.get(number);
    }

    /// Takes one off the list while it goes on.
    void unlist(int number) {
        memberships.get(number).close();
    }

    /// Has one reported to the master again.
    void list(int number) {
        memberships.set(number, OwnerMembership.start(config(), owner(number)));
    }

    /// Ends one, with or without a word to the master.
    void end(int number, boolean orderly) {
        if (orderly) {
            memberships.get(number).close();
        }
        owners.get(number).close();
    }

    /// Where the master is, with limits that do not decide on a busy machine.
    RemoteStoreConfig config() {
        return new RemoteStoreConfig(
                master.orElseThrow().address(),
                Optional.empty(),
                Optional.empty(),
                false,
                LONG,
                LONG);
    }

    StoreMaster master() {
        return master.orElseThrow();
    }

    /// A user that has found all owners.
    DirectoryStore user(StoreIdentity identity) {
        var store = DirectoryStore.open(config(), identity, true);
        int count = MasterView.ask(config()).size();
        await("all are found", () -> store.owners() == count);
        return store;
    }

    void pass(Duration time) {
        nanos.addAndGet(time.toNanos());
        owners.forEach(owner -> owner.store().tick());
    }

    static void await(String what, BooleanSupplier condition) {
        var limit = Deadline.in(LONG);
        while (!condition.getAsBoolean()) {
            if (limit.passed()) {
                throw new AssertionError("not in time: " + what);
            }
            LockSupport.parkNanos(5_000_000);
        }
    }

    @Override
    public void close() {
        memberships.forEach(OwnerMembership::close);
        owners.forEach(StoreOwner::close);
        master.ifPresent(StoreMaster::close);
    }
}
