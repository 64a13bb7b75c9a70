// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.te.MetadataServer;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.toolkit.secret.FleetSecret;

import java.util.Map;
import java.util.Optional;

/// `kvferry metadata-server`: Mooncake's HTTP metadata server, for fleets whose engines find each
/// other through one instead of P2PHANDSHAKE.
public final class MetadataServerCommand implements CommandProvider {
    private static final String SECRET_FILE = "secret_file";

    @Override
    public String name() {
        return "metadata-server";
    }

    @Override
    public String description() {
        return "Serves Mooncake's HTTP metadata (option metadata=http://host:port/metadata of transfer engines).";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.of(
                Option.of("host", Option.Type.STRING, "address to listen on")
                        .withDefault("127.0.0.1"),
                Option.of("port", Option.Type.INTEGER, "port to listen on, 0 for any free one")
                        .withDefault("8080")
                        .inRange(0, 65_535),
                Option.of(
                        SECRET_FILE,
                        Option.Type.PATH,
                        "file with the fleet's secret, with which requests must be signed (Mooncake's are not); "
                                + FleetSecret.SETTING
                                + " else"));
    }

    @Override
    public int run(CommandProvider.Context context) {
        var options = context.options();
        var host = options.string("host");
        var secret =
                options.has(SECRET_FILE)
                        ? Optional.of(FleetSecret.read(options.path(SECRET_FILE)))
                        : FleetSecret.configured();
        try (var server =
                MetadataServer.start(host, Math.toIntExact(options.integer("port")), secret)) {
            var url = server.connection();
            context.serveUntilStopped("serving metadata on " + url, Map.of("url", url));
        }
        return 0;
    }
}
