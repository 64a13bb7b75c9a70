// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.master.MasterView;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.spi.Finding;
import io.kvferry.spi.KvFerryException;

import java.util.Map;
import java.util.Optional;

/// What `kvferry doctor` says of the store that the environment and Mooncake's configuration file
/// name.
final class StoreDiagnosis {
    private static final StoreIdentity NOBODY = new StoreIdentity("", "kvferry doctor", "");
    private static final String STORE = "store";
    private static final String MASTER = "master of the store";
    private static final String OWNER = "owner of the store";

    private StoreDiagnosis() {}

    /// Which store is named, and whether it answers; empty where none is named.
    static Optional<Finding> of(Map<String, String> environment) {
        boolean file = environment.containsKey(MooncakeFile.VARIABLE);
        if (!file && !environment.containsKey(StoreChoice.MASTER)) {
            return Optional.empty();
        }
        StoreChoice choice;
        try {
            choice = StoreChoice.of(StoreOptions.SCHEMA.read("doctor", Map.of()), environment);
        } catch (KvFerryException e) {
            return Optional.of(
                    Finding.optional(
                            STORE,
                            String.valueOf(e.getMessage()),
                            "MooncakeStoreConnector does not start with it unless its option store"
                                    + " names another one"));
        }
        if (choice.directory().isPresent()) {
            return choice.directory().map(StoreDiagnosis::master);
        }
        if (choice.remote().isPresent()) {
            return choice.remote().map(StoreDiagnosis::owner);
        }
        return Optional.of(
                Finding.ok(
                        STORE,
                        choice.cluster()
                                .map(cluster -> "a Mooncake cluster, master at " + cluster.master())
                                .orElse("in the JVM of the engine, nobody else sees it")));
    }

    private static Finding master(RemoteStoreConfig master) {
        try {
            int owners = MasterView.ask(master).size();
            return Finding.ok(MASTER, master.address() + " lists " + owners + " owners");
        } catch (KvFerryException e) {
            return away(MASTER, String.valueOf(e.getMessage()), "kvferry master");
        }
    }

    private static Finding owner(RemoteStoreConfig owner) {
        try (var store = RemoteStore.open(owner, NOBODY, false)) {
            return store.healthCheck() == 0
                    ? Finding.ok(OWNER, owner.address() + " answers")
                    : away(OWNER, owner.address() + " does not answer", "kvferry owner");
        } catch (KvFerryException e) {
            return away(OWNER, String.valueOf(e.getMessage()), "kvferry owner");
        }
    }

    private static Finding away(String what, String found, String command) {
        return Finding.optional(
                what,
                found,
                "start it ("
                        + command
                        + ") or name another one; until then MooncakeStoreConnector goes without a"
                        + " store");
    }
}
