// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

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
/// file.
///
/// @param remote the owner; empty for the store of this JVM
/// @param tenant whose blocks they are
/// @param stagingBytes of the owner's disk tier, by which loads are split; 0 for not
/// @param stagingRatio part of that which is planned with
record StoreChoice(
        Optional<RemoteStoreConfig> remote, String tenant, long stagingBytes, double stagingRatio) {
    private static final Logger LOG = LoggerFactory.getLogger(StoreChoice.class);
    private static final String EMBEDDED = "embedded";
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
        String address = address(options, file, environment.get("MOONCAKE_MASTER"));
        if (address.equals(EMBEDDED)) {
            return new StoreChoice(Optional.empty(), tenant, staging, ratio);
        }
        var remote =
                new RemoteStoreConfig(
                        address,
                        localHost(options, environment),
                        options.has("secret_file")
                                ? Optional.of(options.path("secret_file"))
                                : Optional.empty(),
                        options.bool("insecure"),
                        options.duration("rpc_timeout"),
                        StoreOptions.lease(options));
        return new StoreChoice(Optional.of(remote), tenant, staging, ratio);
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
        if (!value.isBoolean()) {
            throw bad("enable_offload is not true or false");
        }
        return value.asBoolean();
    }

    private static long stagingBytes(Map<String, String> environment) {
        String text = environment.get(STAGING);
        if (text == null || text.isBlank()) {
            return DiskStaging.DEFAULT_BYTES;
        }
        var matcher = SIZE.matcher(text.strip().toLowerCase(Locale.ROOT));
        if (!matcher.matches()) {
            throw bad(STAGING + " is " + text + ", not a size");
        }
        double unit =
                switch (matcher.group(2) == null ? "b" : matcher.group(2)) {
                    case "gb" -> 1L << 30;
                    case "mb" -> 1L << 20;
                    case "kb" -> 1L << 10;
                    default -> 1;
                };
        long bytes = (long) (Double.parseDouble(matcher.group(1)) * unit);
        if (bytes <= 0) {
            throw bad(STAGING + " is " + text + ", which is nothing");
        }
        return bytes;
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
            case EMBEDDED -> EMBEDDED;
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
