// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.cluster.ClusterReader;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.toolkit.secret.FleetSecret;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Optional;

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
                        "go without a secret to or for other hosts: everybody on the network reads and writes")
                .withDefault("false");
    }

    static OptionSchema schema(Option... more) {
        var options = new ArrayList<>(Arrays.asList(more));
        options.add(
                Option.of(
                                "store",
                                Option.Type.STRING,
                                "host:port of the store's owner; http://host:9003, the admin port of"
                                        + " the master, for a Mooncake cluster, whose keys are of all"
                                        + " tenants")
                        .withDefault("127.0.0.1:50053"));
        options.add(
                Option.of("tenant_id", Option.Type.STRING, "whose objects")
                        .withDefault(StoreIdentity.DEFAULT_TENANT));
        options.add(secretFile());
        options.add(insecure());
        return OptionSchema.of(options.toArray(Option[]::new));
    }

    static RemoteStoreConfig config(OptionValues options) {
        var base = RemoteStoreConfig.of(options.string("store"));
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

    /// The reader of a Mooncake cluster, where it is one.
    static Optional<ClusterReader> cluster(OptionValues options) {
        String store = options.string("store");
        return store.startsWith("http://")
                ? Optional.of(new ClusterReader(store, CLUSTER_LIMIT))
                : Optional.empty();
    }

    static RemoteStore open(OptionValues options) {
        return RemoteStore.open(config(options), NOBODY, false);
    }

    /// The object of a key.
    static Optional<StoredKey> find(RemoteStore store, OptionValues options, String key) {
        return store.list(options.string("tenant_id"), key, 1).stream()
                .filter(object -> object.key().equals(key))
                .findFirst();
    }
}
