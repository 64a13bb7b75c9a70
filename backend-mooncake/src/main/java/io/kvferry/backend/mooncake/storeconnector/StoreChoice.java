// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.backend.mooncake.storeconnector.MooncakeFile.EMBEDDED;
import static io.kvferry.backend.mooncake.storeconnector.MooncakeFile.STANDALONE;
import static io.kvferry.backend.mooncake.storeconnector.MooncakeFile.bad;

import io.kvferry.backend.mooncake.store.cluster.ClusterConfig;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionValues;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Map;
import java.util.Optional;

/// Which store the options, Mooncake's configuration file (`MOONCAKE_CONFIG_PATH`) and the
/// environment name. What stands in the options goes before the rest, `MOONCAKE_MASTER` before the
/// file. A master that is named together with a metadata server is that of a Mooncake cluster; an
/// owner process of ours has none. A master that is named with `master://` in front is ours.
///
/// @param remote the owner, where it is that
/// @param directory the master of several owners, where it is that
/// @param cluster the Mooncake cluster, where it is that; with none it is the store of this JVM
/// @param tenant whose blocks they are
/// @param staging of the owner's disk tier
record StoreChoice(
        Optional<RemoteStoreConfig> remote,
        Optional<RemoteStoreConfig> directory,
        Optional<ClusterConfig> cluster,
        String tenant,
        StagingSettings staging) {
    static final String MASTER = "MOONCAKE_MASTER";
    static final String METADATA = "MOONCAKE_TE_META_DATA_SERVER";

    private static final Logger LOG = LoggerFactory.getLogger(StoreChoice.class);

    static StoreChoice of(OptionValues options) {
        return of(options, System.getenv());
    }

    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] for a file that cannot be read or values
    ///   that do not go together
    static StoreChoice of(OptionValues options, Map<String, String> environment) {
        var file = MooncakeFile.of(environment);
        String tenant =
                options.has(StoreOptions.TENANT)
                        ? options.string(StoreOptions.TENANT)
                        : file.map(json -> json.text("tenant_id", "").strip()).orElse("");
        var staging = StagingSettings.of(file, environment);
        var localHost = localHost(options, environment);
        var cluster = ClusterChoice.of(options, file, environment, localHost, tenant);
        Optional<RemoteStoreConfig> none = Optional.empty();
        if (cluster.isPresent()) {
            return new StoreChoice(none, none, cluster, tenant, staging);
        }
        String address = address(options, file, environment.get(MASTER));
        if (address.equals(EMBEDDED)) {
            return new StoreChoice(none, none, Optional.empty(), tenant, staging);
        }
        boolean ours = address.startsWith(RemoteStoreConfig.MASTER_AT);
        var remote =
                Optional.of(
                        new RemoteStoreConfig(
                                RemoteStoreConfig.withoutScheme(address),
                                localHost,
                                options.has("secret_file")
                                        ? Optional.of(options.path("secret_file"))
                                        : Optional.empty(),
                                options.bool("insecure"),
                                options.duration("rpc_timeout"),
                                StoreOptions.lease(options)));
        return new StoreChoice(
                ours ? none : remote, ours ? remote : none, Optional.empty(), tenant, staging);
    }

    private static String address(
            OptionValues options, Optional<MooncakeFile> file, @Nullable String master) {
        if (options.has(StoreOptions.STORE)) {
            return options.string(StoreOptions.STORE).strip();
        }
        String mode = file.map(MooncakeFile::mode).orElse("");
        String named =
                master != null && !master.isEmpty()
                        ? master
                        : file.map(MooncakeFile::master).orElse("");
        return switch (mode) {
            case EMBEDDED -> {
                if (named.startsWith(RemoteStoreConfig.MASTER_AT)) {
                    yield named; // no Mooncake reads it, so the file was written for us
                }
                if (master != null && !master.isBlank()) {
                    LOG.warn(
                            "{} has no effect: mode embedded of the file MOONCAKE_CONFIG_PATH means"
                                    + " a store in this JVM that nobody else sees; set {} for a"
                                    + " Mooncake cluster, mode {} for an owner, or the option {}",
                            MASTER,
                            METADATA,
                            STANDALONE,
                            StoreOptions.STORE);
                }
                yield EMBEDDED;
            }
            case STANDALONE -> {
                if (named.isEmpty()) {
                    throw bad("mode " + STANDALONE + " needs master_server_address");
                }
                yield named;
            }
            case "" -> named.isEmpty() ? EMBEDDED : named;
            default -> throw bad("mode " + mode + " is neither embedded nor " + STANDALONE);
        };
    }

    private static Optional<String> localHost(
            OptionValues options, Map<String, String> environment) {
        return options.optionalString("local_hostname")
                .or(() -> Optional.ofNullable(environment.get("MOONCAKE_REQUESTER_LOCAL_HOSTNAME")))
                .or(() -> Optional.ofNullable(environment.get("MOONCAKE_LOCAL_HOSTNAME")))
                .map(String::strip)
                .filter(name -> !name.isEmpty());
    }
}
