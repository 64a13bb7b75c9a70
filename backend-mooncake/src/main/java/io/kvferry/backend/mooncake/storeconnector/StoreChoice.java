// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.cluster.ClusterConfig;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionValues;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Pattern;

/// Which store the options, Mooncake's configuration file (`MOONCAKE_CONFIG_PATH`) and the
/// environment name. What stands in the options goes before the rest, `MOONCAKE_MASTER` before the
/// file. A master that is named together with a metadata server is that of a Mooncake cluster; an
/// owner process of ours has none. A master that is named with `master://` in front is ours.
///
/// @param remote the owner, where it is that
/// @param directory the master of several owners, where it is that
/// @param cluster the Mooncake cluster, where it is that; with none it is the store of this JVM
/// @param tenant whose blocks they are
/// @param stagingBytes of the owner's disk tier, by which loads are split; 0 for not
/// @param stagingRatio part of that which is planned with
record StoreChoice(
        Optional<RemoteStoreConfig> remote,
        Optional<RemoteStoreConfig> directory,
        Optional<ClusterConfig> cluster,
        String tenant,
        long stagingBytes,
        double stagingRatio) {
    private static final Logger LOG = LoggerFactory.getLogger(StoreChoice.class);
    private static final String EMBEDDED = "embedded";
    private static final String CLUSTER = "mooncake";
    private static final String CLUSTER_AT = "mooncake://";
    private static final String MASTER = "MOONCAKE_MASTER";
    private static final String METADATA = "MOONCAKE_TE_META_DATA_SERVER";

    /// Mooncake's default of what a client adds to a cluster.
    private static final long SEGMENT = 4L << 30;

    private static final String STANDALONE = "standalone-store";

    private static final String STAGING = "MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES";
    private static final String RATIO = "VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO";
    private static final Pattern SIZE = Pattern.compile("([0-9]+(?:\\.[0-9]+)?)\\s*(gb|mb|kb|b)?");

    /// Keys of the file that Mooncake knows.
    private static final Set<String> KNOWN =
            Set.of(
                    "metadata_server",
                    "master_server_address",
                    "protocol",
                    "device_name",
                    "local_buffer_size",
                    "global_segment_size",
                    "enable_offload",
                    "mode",
                    "tenant_id");

    static StoreChoice of(OptionValues options) {
        return of(options, System.getenv());
    }

    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] for a file that cannot be read or values
    ///   that do not go together
    static StoreChoice of(OptionValues options, Map<String, String> environment) {
        var file =
                Optional.ofNullable(environment.get("MOONCAKE_CONFIG_PATH"))
                        .filter(path -> !path.isBlank())
                        .map(path -> read(Path.of(path)));
        String tenant =
                options.has(StoreOptions.TENANT)
                        ? options.string(StoreOptions.TENANT)
                        : file.map(json -> tenant(json)).orElse("");
        long staging = offloads(file, environment) ? stagingBytes(environment) : 0;
        double ratio = stagingRatio(environment);
        var cluster = cluster(options, file, environment, tenant);
        Optional<RemoteStoreConfig> none = Optional.empty();
        if (cluster.isPresent()) {
            return new StoreChoice(none, none, cluster, tenant, staging, ratio);
        }
        String address = address(options, file, environment.get(MASTER));
        if (address.equals(EMBEDDED)) {
            return new StoreChoice(none, none, Optional.empty(), tenant, staging, ratio);
        }
        boolean ours = address.startsWith(RemoteStoreConfig.MASTER_AT);
        var remote =
                Optional.of(
                        new RemoteStoreConfig(
                                RemoteStoreConfig.withoutScheme(address),
                                localHost(options, environment),
                                options.has("secret_file")
                                        ? Optional.of(options.path("secret_file"))
                                        : Optional.empty(),
                                options.bool("insecure"),
                                options.duration("rpc_timeout"),
                                StoreOptions.lease(options)));
        return new StoreChoice(
                ours ? none : remote,
                ours ? remote : none,
                Optional.empty(),
                tenant,
                staging,
                ratio);
    }

    /// The Mooncake cluster, if that is what is named.
    private static Optional<ClusterConfig> cluster(
            OptionValues options,
            Optional<JsonNode> file,
            Map<String, String> environment,
            String tenant) {
        String store = options.optionalString(StoreOptions.STORE).map(String::strip).orElse("");
        boolean told = store.equals(CLUSTER) || store.startsWith(CLUSTER_AT);
        if (!store.isEmpty() && !told) {
            return Optional.empty();
        }
        String master = environment.getOrDefault(MASTER, "").strip();
        String metadata = environment.getOrDefault(METADATA, "").strip();
        if (store.startsWith(CLUSTER_AT)) {
            master = store.substring(CLUSTER_AT.length());
            // A file or a variable is about another master.
            metadata =
                    options.optionalString(StoreOptions.METADATA_SERVER)
                            .orElse(ClusterConfig.NO_METADATA_SERVER);
            file = Optional.empty();
        } else if (master.isEmpty() || told) {
            master =
                    master.isEmpty()
                            ? file.map(json -> text(json, "master_server_address", "")).orElse("")
                            : master;
            metadata =
                    metadata.isEmpty()
                            ? file.map(json -> text(json, "metadata_server", "")).orElse("")
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
                            + MASTER
                            + ", or master_server_address in the file MOONCAKE_CONFIG_PATH");
        }
        return Optional.of(
                new ClusterConfig(
                        master,
                        metadata.isEmpty() ? ClusterConfig.NO_METADATA_SERVER : metadata,
                        localHost(options, environment),
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
            Optional<JsonNode> file,
            String key,
            String byDefault,
            String inFile) {
        return options.optionalString(option)
                .orElseGet(() -> file.map(json -> text(json, key, inFile)).orElse(byDefault));
    }

    private static long segment(OptionValues options, Optional<JsonNode> file) {
        if (options.has(StoreOptions.CLUSTER_SEGMENT)) {
            return options.bytes(StoreOptions.CLUSTER_SEGMENT);
        }
        if (file.isEmpty()) {
            return 0;
        }
        String mode = text(file.get(), "mode", EMBEDDED);
        long bytes = size(file.get(), "global_segment_size", mode.equals(EMBEDDED) ? SEGMENT : 0);
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

    private static long localBuffer(Optional<JsonNode> file) {
        return file.map(json -> size(json, "local_buffer_size", ClusterConfig.LOCAL_BUFFER))
                .orElse(ClusterConfig.LOCAL_BUFFER);
    }

    private static long size(JsonNode json, String key, long byDefault) {
        JsonNode value = json.path(key);
        if (value.isMissingNode() || value.isNull()) {
            return byDefault;
        }
        if (value.isNumber()) {
            return value.asLong();
        }
        if (!value.isString()) {
            throw bad(key + " is no size");
        }
        return size(key, value.asString());
    }

    /// How loads are split for an owner, or null.
    @Nullable DiskStaging staging(String owner) {
        return stagingBytes == 0 ? null : DiskStaging.of(owner, stagingBytes, stagingRatio);
    }

    /// The same for the store of this JVM, which has readers wait by itself.
    @Nullable DiskStaging ownStaging() {
        return stagingBytes == 0 ? null : DiskStaging.alone(stagingBytes, stagingRatio);
    }

    /// The variable wins over the file, also where it says no.
    private static boolean offloads(Optional<JsonNode> file, Map<String, String> environment) {
        String variable = environment.get("MOONCAKE_ENABLE_OFFLOAD");
        if (variable != null) {
            String word = variable.strip().toLowerCase(Locale.ROOT);
            return word.equals("1") || word.equals("true");
        }
        if (file.isEmpty()) {
            return false;
        }
        JsonNode value = file.get().path("enable_offload");
        if (value.isMissingNode() || value.isNull()) {
            return false;
        }
        if (value.isBoolean()) {
            return value.asBoolean();
        }
        if (value.isNumber()) {
            return value.asInt() != 0;
        }
        String word = value.isString() ? value.asString().strip().toLowerCase(Locale.ROOT) : "?";
        return switch (word) {
            case "true", "1" -> true;
            case "" -> false;
            // vLLM takes "false" for a yes, so whatever is done here surprises somebody.
            default -> throw bad("enable_offload is not true or false");
        };
    }

    private static long stagingBytes(Map<String, String> environment) {
        String text = environment.get(STAGING);
        if (text == null || text.isBlank()) {
            return DiskStaging.DEFAULT_BYTES;
        }
        long bytes = size(STAGING, text);
        if (bytes <= 0) {
            throw bad(STAGING + " is " + text + ", which is nothing");
        }
        return bytes;
    }

    private static long size(String name, String text) {
        var matcher = SIZE.matcher(text.strip().toLowerCase(Locale.ROOT));
        if (!matcher.matches()) {
            throw bad(name + " is " + text + ", not a size");
        }
        double unit =
                switch (matcher.group(2) == null ? "b" : matcher.group(2)) {
                    case "gb" -> 1L << 30;
                    case "mb" -> 1L << 20;
                    case "kb" -> 1L << 10;
                    default -> 1;
                };
        return (long) (Double.parseDouble(matcher.group(1)) * unit);
    }

    private static double stagingRatio(Map<String, String> environment) {
        String text = environment.get(RATIO);
        if (text == null || text.isBlank()) {
            return DiskStaging.DEFAULT_RATIO;
        }
        try {
            double ratio = Double.parseDouble(text.strip());
            if (ratio > 0 && ratio <= 1) {
                return ratio;
            }
        } catch (NumberFormatException _) {
            // as one that is out of range
        }
        throw bad(RATIO + " is " + text + ", not in (0, 1]");
    }

    private static String address(
            OptionValues options, Optional<JsonNode> file, @Nullable String master) {
        if (options.has(StoreOptions.STORE)) {
            return options.string(StoreOptions.STORE).strip();
        }
        String mode = file.map(json -> text(json, "mode", EMBEDDED)).orElse("");
        String named =
                master != null && !master.isEmpty()
                        ? master
                        : file.map(json -> text(json, "master_server_address", "")).orElse("");
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

    private static String tenant(JsonNode json) {
        return text(json, "tenant_id", "").strip();
    }

    private static String text(JsonNode json, String key, String byDefault) {
        JsonNode value = json.path(key);
        if (value.isMissingNode() || value.isNull()) {
            return byDefault;
        }
        if (!value.isString()) {
            throw bad(key + " is not a string");
        }
        return value.asString();
    }

    private static JsonNode read(Path path) {
        JsonNode json;
        try {
            json = JsonMapper.builder().build().readTree(path.toFile());
        } catch (JacksonException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "MOONCAKE_CONFIG_PATH " + path + " cannot be read: " + e.getOriginalMessage(),
                    e);
        }
        if (!json.isObject()) {
            throw bad(path + " is no JSON object");
        }
        for (var field : json.properties()) {
            if (!KNOWN.contains(field.getKey())) {
                LOG.warn("{}: key {} is of no effect", path, field.getKey());
            }
        }
        return json;
    }

    private static KvFerryException bad(String text) {
        return new KvFerryException(ErrorCode.BAD_CONFIG, "configuration of the store: " + text);
    }
}
