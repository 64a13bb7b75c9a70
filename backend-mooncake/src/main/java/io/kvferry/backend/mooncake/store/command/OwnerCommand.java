// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.backend.mooncake.store.embedded.StoreConfig;
import io.kvferry.backend.mooncake.store.master.OwnerMembership;
import io.kvferry.backend.mooncake.store.remote.DiskOptions;
import io.kvferry.backend.mooncake.store.remote.OwnerHttp;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// `kvferry owner`: a store for the engines of this host, and of others, that outlives them.
public final class OwnerCommand implements CommandProvider {
    private static final StoreConfig DEFAULT = StoreConfig.DEFAULT;

    @Override
    public String name() {
        return "owner";
    }

    @Override
    public String description() {
        return "Runs a store that engines share and that outlives them (option store=HOST:PORT of"
                + " MooncakeStoreConnector).";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        var options = new ArrayList<>(basic());
        options.addAll(DiskOptions.all());
        return OptionSchema.of(options.toArray(Option[]::new));
    }

    private static List<Option> basic() {
        return List.of(
                Option.of(
                                "host",
                                Option.Type.STRING,
                                "address to listen on, by which engines reach it")
                        .withDefault("127.0.0.1"),
                Option.of(
                                "port",
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
    private static Optional<RemoteStoreConfig> master(
            OptionValues options, StoreOwner.Settings settings) {
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

    @Override
    public int run(CommandProvider.Context context) {
        var options = context.options();
        var settings = settings(options);
        int httpPort = Math.toIntExact(options.integer("http_port"));
        var master = master(options, settings);
        try (var owner = StoreOwner.start(settings);
                var http =
                        new OwnerHttp(
                                owner, settings.secret(), options.string("http_host"), httpPort);
                var _ = new Reports(master.map(known -> OwnerMembership.start(known, owner)))) {
            context.serveUntilStopped(
                    "store of "
                            + settings.bytes()
                            + " bytes"
                            + settings.disk()
                                    .map(tier -> " and the disk tier " + tier.folder())
                                    .orElse("")
                            + " on "
                            + owner.address()
                            + ", metrics on "
                            + http.url()
                            + "/metrics"
                            + master.map(known -> ", master " + known.address()).orElse(""),
                    Map.of("address", owner.address(), "url", http.url()));
        }
        return 0;
    }

    /// To the master, if there is one; they end first.
    private record Reports(Optional<OwnerMembership> membership) implements AutoCloseable {
        @Override
        public void close() {
            membership.ifPresent(OwnerMembership::close);
        }
    }
}
