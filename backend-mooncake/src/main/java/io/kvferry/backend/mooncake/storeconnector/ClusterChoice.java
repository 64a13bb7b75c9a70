// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.backend.mooncake.storeconnector.MooncakeFile.EMBEDDED;
import static io.kvferry.backend.mooncake.storeconnector.MooncakeFile.STANDALONE;
import static io.kvferry.backend.mooncake.storeconnector.MooncakeFile.bad;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.cluster.ClusterConfig;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.spi.config.OptionValues;

import java.util.Map;
import java.util.Optional;

/// Whether a Mooncake cluster is named, and how it is used.
final class ClusterChoice {
    private static final String CLUSTER = "mooncake";
    private static final String CLUSTER_AT = "mooncake://";

    /// Mooncake's default of what a client adds to a cluster.
    private static final long SEGMENT = 4L << 30;

    private ClusterChoice() {}

    /// The Mooncake cluster, if that is what is named.
    static Optional<ClusterConfig> of(
            OptionValues options,
            Optional<MooncakeFile> file,
            Map<String, String> environment,
            Optional<String> localHost,
            String tenant) {
        String store = options.optionalString(StoreOptions.STORE).map(String::strip).orElse("");
        boolean told = store.equals(CLUSTER) || store.startsWith(CLUSTER_AT);
        if (!store.isEmpty() && !told) {
            return Optional.empty();
        }
        String master = environment.getOrDefault(StoreChoice.MASTER, "").strip();
        String metadata = environment.getOrDefault(StoreChoice.METADATA, "").strip();
        if (store.startsWith(CLUSTER_AT)) {
            master = store.substring(CLUSTER_AT.length());
            // A file or a variable is about another master.
            metadata =
                    options.optionalString(StoreOptions.METADATA_SERVER)
                            .orElse(ClusterConfig.NO_METADATA_SERVER);
            file = Optional.empty();
        } else if (master.isEmpty() || told) {
            master = master.isEmpty() ? file.map(MooncakeFile::master).orElse("") : master;
            metadata =
                    metadata.isEmpty()
                            ? file.map(json -> json.text("metadata_server", "")).orElse("")
                            : metadata;
        }
        metadata = options.optionalString(StoreOptions.METADATA_SERVER).orElse(metadata).strip();
        boolean ours = master.startsWith(RemoteStoreConfig.MASTER_AT);
        if (!told && (master.isEmpty() || metadata.isEmpty() || ours)) {
            return Optional.empty();
        }
        if (master.isEmpty() || ours) {
            throw bad(
                    "store "
                            + store
                            + " needs the address of the master: write mooncake://host:port, or set"
                            + " "
                            + StoreChoice.MASTER
                            + ", or master_server_address in the file MOONCAKE_CONFIG_PATH");
        }
        return Optional.of(
                new ClusterConfig(
                        master,
                        metadata.isEmpty() ? ClusterConfig.NO_METADATA_SERVER : metadata,
                        localHost,
                        setting(options, StoreOptions.PROTOCOL, file, "protocol", "tcp", "rdma"),
                        setting(options, StoreOptions.DEVICE, file, "device_name", "", ""),
                        segment(options, file),
                        localBuffer(file),
                        tenant.isEmpty() ? StoreIdentity.DEFAULT_TENANT : tenant,
                        options.has(StoreOptions.LIBRARY)
                                ? Optional.of(options.path(StoreOptions.LIBRARY))
                                : Optional.empty(),
                        options.duration("rpc_timeout"),
                        StoreOptions.lease(options)));
    }

    /// @param inFile the default of the file, which is Mooncake's
    private static String setting(
            OptionValues options,
            String option,
            Optional<MooncakeFile> file,
            String key,
            String byDefault,
            String inFile) {
        return options.optionalString(option)
                .orElseGet(() -> file.map(json -> json.text(key, inFile)).orElse(byDefault));
    }

    private static long segment(OptionValues options, Optional<MooncakeFile> file) {
        if (options.has(StoreOptions.CLUSTER_SEGMENT)) {
            return options.bytes(StoreOptions.CLUSTER_SEGMENT);
        }
        if (file.isEmpty()) {
            return 0;
        }
        String mode = file.get().mode();
        long bytes = file.get().size("global_segment_size", mode.equals(EMBEDDED) ? SEGMENT : 0);
        return switch (mode) {
            case EMBEDDED -> {
                if (bytes == 0) {
                    throw bad("mode embedded needs global_segment_size above 0");
                }
                yield bytes;
            }
            case STANDALONE -> {
                if (bytes != 0) {
                    throw bad("mode " + STANDALONE + " needs global_segment_size 0");
                }
                yield 0;
            }
            default -> throw bad("mode " + mode + " is neither embedded nor " + STANDALONE);
        };
    }

    private static long localBuffer(Optional<MooncakeFile> file) {
        return file.map(json -> json.size("local_buffer_size", ClusterConfig.LOCAL_BUFFER))
                .orElse(ClusterConfig.LOCAL_BUFFER);
    }
}
