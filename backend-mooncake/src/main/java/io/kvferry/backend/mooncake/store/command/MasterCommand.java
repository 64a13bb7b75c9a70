// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.backend.mooncake.store.master.MasterHttp;
import io.kvferry.backend.mooncake.store.master.StoreMaster;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;

import java.util.Map;
import java.util.Optional;

/// `kvferry master`: the directory of a store with several owners.
public final class MasterCommand implements CommandProvider {
    @Override
    public String name() {
        return "master";
    }

    @Override
    public String description() {
        return "Runs the directory of a store with several owners (kvferry owner --master; option"
                + " store=master://HOST:PORT of MooncakeStoreConnector). It holds no keys.";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.of(
                Option.of(
                                "host",
                                Option.Type.STRING,
                                "address to listen on, by which owners and engines reach it")
                        .withDefault("127.0.0.1"),
                Option.of(
                                "port",
                                Option.Type.INTEGER,
                                "port on which owners and engines ask, 0 for any free one")
                        .withDefault("50051")
                        .inRange(0, 65_535),
                Option.of(
                                "owner_ttl",
                                Option.Type.DURATION,
                                "after which an owner that gives no sign of life is not listed"
                                        + " any more")
                        .withDefault("10s")
                        .inRange(1, 3600),
                Option.of(
                                "http_host",
                                Option.Type.STRING,
                                "address of /health, /metrics and /owners")
                        .withDefault("127.0.0.1"),
                Option.of(
                                "http_port",
                                Option.Type.INTEGER,
                                "port of /health, /metrics and /owners, 0 for any free one")
                        .withDefault("9003")
                        .inRange(0, 65_535),
                Option.of(
                        "forgotten_file",
                        Option.Type.PATH,
                        "file that keeps the owners that were forgotten (kvferry store"
                                + " forget-owner); without one a master that is started anew lists"
                                + " them again"),
                StoreTool.secretFile(),
                StoreTool.insecure());
    }

    @Override
    public int run(Context context) {
        var options = context.options();
        var settings =
                new StoreMaster.Settings(
                        options.string("host"),
                        Math.toIntExact(options.integer("port")),
                        options.duration("owner_ttl"),
                        options.has("secret_file")
                                ? Optional.of(options.path("secret_file"))
                                : Optional.empty(),
                        options.bool("insecure"),
                        options.has("forgotten_file")
                                ? Optional.of(options.path("forgotten_file"))
                                : Optional.empty());
        int httpPort = Math.toIntExact(options.integer("http_port"));
        try (var master = StoreMaster.start(settings);
                var http =
                        new MasterHttp(
                                master, settings.secret(), options.string("http_host"), httpPort)) {
            context.serveUntilStopped(
                    "directory of the owners of a store on "
                            + master.address()
                            + ", metrics on "
                            + http.url()
                            + "/metrics",
                    Map.of("address", master.address(), "url", http.url()));
        }
        return 0;
    }
}
