// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.cluster.ClusterReader;
import io.kvferry.backend.mooncake.store.master.MasterView;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoredKey;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.toolkit.secret.FleetSecret;

import tools.jackson.databind.node.ObjectNode;

import java.io.PrintWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;

/// What the commands that look into a store have in common.
abstract class StoreTool implements CommandProvider {
    private static final Duration CLUSTER_LIMIT = Duration.ofSeconds(30);
    private static final StoreIdentity NOBODY = new StoreIdentity("", "kvferry store", "");

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    static Option secretFile() {
        return Option.of(
                "secret_file",
                Option.Type.PATH,
                "file with the fleet's secret; " + FleetSecret.SETTING + " else");
    }

    static Option insecure() {
        return Option.of(
                        "insecure",
                        Option.Type.BOOLEAN,
                        "go without a secret to or for other hosts: everybody on the network reads"
                                + " and writes")
                .withDefault("false");
    }

    static Option master() {
        return Option.of(
                "master",
                Option.Type.STRING,
                "host:port of the directory (kvferry master) that lists this owner beside others;"
                        + " without it engines name the owner itself");
    }

    static OptionSchema schema(Option... more) {
        var options = new ArrayList<>(Arrays.asList(more));
        options.add(
                Option.of(
                                "store",
                                Option.Type.STRING,
                                "host:port of the store's owner; master://host:port of a directory"
                                        + " of owners; http://host:9003, the admin port of the master,"
                                        + " for a Mooncake cluster, whose keys are of all tenants")
                        .withDefault("127.0.0.1:50053"));
        options.add(
                Option.of("tenant_id", Option.Type.STRING, "whose objects")
                        .withDefault(StoreIdentity.DEFAULT_TENANT));
        options.add(secretFile());
        options.add(insecure());
        return OptionSchema.of(options.toArray(Option[]::new));
    }

    static RemoteStoreConfig config(OptionValues options) {
        var base = RemoteStoreConfig.of(RemoteStoreConfig.withoutScheme(options.string("store")));
        return new RemoteStoreConfig(
                base.address(),
                base.localHost(),
                options.has("secret_file")
                        ? Optional.of(options.path("secret_file"))
                        : Optional.empty(),
                options.bool("insecure"),
                base.askLimit(),
                base.moveLimit());
    }

    /// The owner that the options name, or those that the master lists that they name.
    private static List<RemoteStoreConfig> owners(OptionValues options, Looked looked) {
        var config = config(options);
        if (looked.err.isEmpty()) {
            return List.of(config);
        }
        var owners = new ArrayList<RemoteStoreConfig>();
        for (var owner : MasterView.ask(config)) {
            try {
                owners.add(config.at(owner.address()));
            } catch (KvFerryException e) {
                looked.skip(owner.address(), e);
            }
        }
        return owners;
    }

    /// The reader of a Mooncake cluster, where it is one.
    static Optional<ClusterReader> cluster(OptionValues options) {
        String store = options.string("store");
        return store.startsWith("http://")
                ? Optional.of(new ClusterReader(store, CLUSTER_LIMIT))
                : Optional.empty();
    }

    /// The owners that the options name, or those that the master lists.
    ///
    /// @param err where owners of a master are named that are away
    static Looked open(OptionValues options, PrintWriter err) {
        boolean listed = options.string("store").strip().startsWith(RemoteStoreConfig.MASTER_AT);
        var looked =
                new Looked(
                        new LinkedHashMap<>(),
                        options.string("tenant_id"),
                        listed ? Optional.of(err) : Optional.empty(),
                        new HashSet<>());
        boolean done = false;
        try {
            for (RemoteStoreConfig owner : owners(options, looked)) {
                try {
                    looked.owners.put(owner, RemoteStore.open(owner, NOBODY, false));
                } catch (KvFerryException e) {
                    looked.skip(owner.address(), e);
                }
            }
            done = true;
            return looked;
        } finally {
            if (!done) {
                looked.close();
            }
        }
    }

    /// A line on standard output.
    ///
    /// @param text for people and for `cut`
    /// @param json what is printed instead with `--json`
    static void print(CommandProvider.Context context, String text, ObjectNode json) {
        context.out().println(context.json() ? json : text);
    }

    /// An object and the owner that has it.
    record Placed(StoredKey object, RemoteStoreConfig owner) {}

    /// Owners that are looked into.
    ///
    /// @param tenant whose objects
    /// @param err where an owner that is away is named; empty where the only owner must be there
    /// @param away addresses of owners that are skipped
    record Looked(
            Map<RemoteStoreConfig, RemoteStore> owners,
            String tenant,
            Optional<PrintWriter> err,
            Set<String> away)
            implements AutoCloseable {
        private void skip(String address, KvFerryException why) {
            err.orElseThrow(() -> why)
                    .println("owner " + address + " is skipped: " + why.getMessage());
            away.add(address);
        }

        /// Objects whose keys begin with `beginning`, in the order of the keys; one that two owners
        /// have once.
        ///
        /// @throws KvFerryException when the only owner does not answer
        Collection<Placed> list(String beginning, int most) {
            var found = new TreeMap<String, Placed>();
            owners.forEach((owner, store) -> {
                if (away.contains(owner.address())) {
                    return;
                }
                try {
                    for (StoredKey object : store.list(tenant, beginning, most)) {
                        found.putIfAbsent(
                                object.key() + '\n' + object.identity(), new Placed(object, owner));
                    }
                } catch (KvFerryException e) {
                    skip(owner.address(), e);
                }
            });
            return found.values().stream().limit(most).toList();
        }

        /// The object of a key.
        Optional<Placed> find(String key) {
            return list(key, 1).stream()
                    .filter(placed -> placed.object().key().equals(key))
                    .findFirst();
        }

        @Override
        public void close() {
            owners.values().forEach(RemoteStore::close);
        }
    }
}
