// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.remote.DiskOptions;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionValues;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/// The options of an owner: of the command that is one, and of the command that starts one.
final class OwnerOptions {
    static final String PORT = "port";

    private static final StoreConfig DEFAULT = StoreConfig.DEFAULT;

    private OwnerOptions() {}

    /// The options, for the schema of a command.
    static List<Option> all() {
        var options = new ArrayList<>(basic());
        options.addAll(DiskOptions.all());
        return options;
    }

    private static List<Option> basic() {
        return List.of(
                Option.of(
                                "host",
                                Option.Type.STRING,
                                "address that the owner listens on, by which engines reach it")
                        .withDefault("127.0.0.1"),
                Option.of(
                                PORT,
                                Option.Type.INTEGER,
                                "port on which engines ask; opened when the memory is there. 0 for"
                                        + " any free one")
                        .withDefault("50053")
                        .inRange(0, 65_535),
                Option.of("global_segment_size", Option.Type.BYTES, "memory of the store")
                        .withDefault((4L << 30) + "")
                        .inRange(4096, 1e15),
                Option.of(
                                "kv_lease_ttl",
                                Option.Type.DURATION,
                                "how long a block that was found is not evicted")
                        .withDefault("10s")
                        .inRange(0.001, 86_400),
                Option.of(
                                "eviction_high_watermark",
                                Option.Type.NUMBER,
                                "share of the store above which blocks are evicted")
                        .withDefault(DEFAULT.highWatermark() + "")
                        .inRange(0.01, 1),
                Option.of(
                                "eviction_ratio",
                                Option.Type.NUMBER,
                                "share of the blocks that one eviction takes at least")
                        .withDefault(DEFAULT.evictionRatio() + "")
                        .inRange(0, 1),
                Option.of(
                                "client_ttl",
                                Option.Type.DURATION,
                                "after which an engine that gives no sign of life is forgotten")
                        .withDefault("10s")
                        .inRange(1, 3600),
                StoreTool.master(),
                Option.of("http_host", Option.Type.STRING, "address of /health and /metrics")
                        .withDefault("127.0.0.1"),
                Option.of(
                                "http_port",
                                Option.Type.INTEGER,
                                "port of /health and /metrics, 0 for any free one")
                        .withDefault("9300")
                        .inRange(0, 65_535),
                StoreTool.secretFile(),
                StoreTool.insecure());
    }

    /// The same options on the command line of an owner; what comes from the environment is
    /// inherited.
    ///
    /// @param port instead of the one that they say
    static List<String> arguments(OptionValues options, int port) {
        var arguments = new ArrayList<String>();
        for (Option option : all()) {
            String name = option.name();
            if (options.has(name)) {
                arguments.add("--" + name.replace('_', '-'));
                arguments.add(name.equals(PORT) ? Integer.toString(port) : text(options, option));
            }
        }
        return arguments;
    }

    private static String text(OptionValues options, Option option) {
        String name = option.name();
        return switch (option.type()) {
            case STRING, CHOICE -> options.string(name);
            case PATH -> options.path(name).toString();
            case BOOLEAN -> Boolean.toString(options.bool(name));
            case INTEGER -> Long.toString(options.integer(name));
            case BYTES -> Long.toString(options.bytes(name));
            case NUMBER -> Double.toString(options.number(name));
            case DURATION -> options.duration(name).toMillis() + "ms";
            case STRING_LIST, JSON ->
                    throw new IllegalArgumentException(name + " cannot be handed on");
        };
    }

    static StoreOwner.Settings settings(OptionValues options) {
        return new StoreOwner.Settings(
                options.string("host"),
                Math.toIntExact(options.integer("port")),
                options.bytes("global_segment_size"),
                DEFAULT.withChecksums(true)
                        .withLeases(options.duration("kv_lease_ttl"), true)
                        .withEviction(
                                options.number("eviction_high_watermark"),
                                options.number("eviction_ratio"),
                                true),
                options.duration("client_ttl"),
                file(options),
                options.bool("insecure"),
                DiskOptions.of(options));
    }

    /// The master that the owner reports to.
    static Optional<RemoteStoreConfig> master(OptionValues options, StoreOwner.Settings settings) {
        return options.optionalString("master")
                .map(text -> {
                    var base = RemoteStoreConfig.of(RemoteStoreConfig.withoutScheme(text));
                    var config =
                            new RemoteStoreConfig(
                                    base.address(),
                                    Optional.empty(),
                                    settings.secretFile(),
                                    settings.insecure(),
                                    base.askLimit(),
                                    base.moveLimit());
                    config.checkSecret();
                    config.checkListed(settings.host());
                    return config;
                });
    }

    private static Optional<Path> file(OptionValues options) {
        return options.has("secret_file")
                ? Optional.of(options.path("secret_file"))
                : Optional.empty();
    }
}
