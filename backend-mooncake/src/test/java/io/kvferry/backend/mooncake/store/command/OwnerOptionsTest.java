// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// What a command that starts an owner hands on to it.
class OwnerOptionsTest {
    private static final OptionSchema SCHEMA =
            OptionSchema.of(OwnerOptions.all().toArray(Option[]::new));

    @TempDir Path folder;

    /// As the command line of an owner is read.
    private static OptionValues read(List<String> arguments) {
        var raw = new HashMap<String, Object>();
        for (int i = 0; i < arguments.size(); i += 2) {
            String name = arguments.get(i).substring("--".length()).replace('-', '_');
            raw.put(name, value(name, arguments.get(i + 1)));
        }
        return SCHEMA.read("test", raw);
    }

    private static Object value(String name, String text) {
        var option = SCHEMA.options().stream().filter(one -> one.name().equals(name)).findFirst();
        return switch (option.orElseThrow().type()) {
            case BOOLEAN -> Boolean.parseBoolean(text);
            case INTEGER -> Long.parseLong(text);
            case NUMBER -> Double.parseDouble(text);
            default -> text;
        };
    }

    @Test
    void everyOptionIsHandedOn() throws Exception {
        var secret = Files.writeString(folder.resolve("secret"), "0123456789abcdef");
        var raw = new HashMap<String, Object>();
        raw.put("host", "127.0.0.2");
        raw.put("port", 1);
        raw.put("global_segment_size", "3MiB");
        raw.put("kv_lease_ttl", "1500ms");
        raw.put("eviction_high_watermark", 0.5);
        raw.put("eviction_ratio", 0.25);
        raw.put("client_ttl", "7s");
        raw.put("master", "127.0.0.1:2");
        raw.put("http_host", "127.0.0.3");
        raw.put("http_port", 3);
        raw.put("secret_file", secret.toString());
        raw.put("insecure", true);
        raw.put("ssd_path", folder.resolve("tier").toString());
        raw.put("ssd_check_folder", false);
        raw.put("ssd_size", "64MiB");
        raw.put("ssd_eviction", "fifo");
        raw.put("ssd_staging_size", "1MiB");
        raw.put("ssd_bucket_size", "2MiB");
        raw.put("ssd_offload", "on_evict");
        raw.put("ssd_promote_after", 2);
        raw.put("ssd_io_timeout", "250ms");
        assertThat(raw)
                .as("a value for each")
                .containsOnlyKeys(SCHEMA.options().stream().map(Option::name).toList());
        var options = SCHEMA.read("test", raw);
        var read = read(OwnerOptions.arguments(options, 5));
        assertThat(read.integer("port")).isEqualTo(5);
        raw.put("port", 5);
        assertThat(OwnerOptions.settings(read))
                .isEqualTo(OwnerOptions.settings(SCHEMA.read("test", raw)));
        for (String name : List.of("http_host", "master")) {
            assertThat(read.string(name)).isEqualTo(raw.get(name));
        }
        assertThat(read.integer("http_port")).isEqualTo(3);
    }

    @Test
    void whatIsNotSaidStaysWithTheEnvironment() {
        var arguments = OwnerOptions.arguments(SCHEMA.read("test", Map.of()), 5);
        assertThat(arguments)
                .contains("--port", "--kv-lease-ttl")
                .doesNotContain("--ssd-path", "--ssd-size", "--secret-file", "--master");
    }
}
