// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

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

/// Mooncake's configuration file, which `MOONCAKE_CONFIG_PATH` names, and the sizes as Mooncake
/// writes them.
final class MooncakeFile {
    static final String EMBEDDED = "embedded";
    static final String STANDALONE = "standalone-store";

    private static final Logger LOG = LoggerFactory.getLogger(MooncakeFile.class);
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

    /// Names the file.
    static final String VARIABLE = "MOONCAKE_CONFIG_PATH";

    private final JsonNode json;

    private MooncakeFile(JsonNode json) {
        this.json = json;
    }

    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when it cannot be read
    static Optional<MooncakeFile> of(Map<String, String> environment) {
        return Optional.ofNullable(environment.get(VARIABLE))
                .filter(path -> !path.isBlank())
                .map(path -> new MooncakeFile(read(Path.of(path))));
    }

    private static JsonNode read(Path path) {
        JsonNode json;
        try {
            json = JsonMapper.builder().build().readTree(path.toFile());
        } catch (JacksonException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    VARIABLE + " " + path + " cannot be read: " + e.getOriginalMessage(),
                    e);
        }
        if (!json.isObject()) {
            throw bad(VARIABLE + " " + path + " is no JSON object");
        }
        for (var field : json.properties()) {
            if (!KNOWN.contains(field.getKey())) {
                LOG.warn("{}: key {} is of no effect", path, field.getKey());
            }
        }
        return json;
    }

    String master() {
        return text("master_server_address", "");
    }

    String mode() {
        return text("mode", EMBEDDED);
    }

    String text(String key, String byDefault) {
        JsonNode value = json.path(key);
        if (value.isMissingNode() || value.isNull()) {
            return byDefault;
        }
        if (!value.isString()) {
            throw bad(key + " is not a string");
        }
        return value.asString();
    }

    long size(String key, long byDefault) {
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
        return parseSize(key, value.asString());
    }

    /// @param name of it, for the message
    static long parseSize(String name, String text) {
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

    boolean offloads() {
        JsonNode value = json.path("enable_offload");
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
            // vLLM treats "false" as true, so either reading would surprise someone: it is refused.
            default -> throw bad("enable_offload is not true or false");
        };
    }

    static KvFerryException bad(String text) {
        return new KvFerryException(ErrorCode.BAD_CONFIG, "configuration of the store: " + text);
    }
}
