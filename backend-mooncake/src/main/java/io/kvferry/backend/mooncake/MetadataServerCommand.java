// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.te.MetadataServer;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;

import java.util.Map;

/// `kvferry metadata-server`: Mooncake's HTTP metadata server, for fleets whose engines find each
/// other through one instead of P2PHANDSHAKE.
public final class MetadataServerCommand implements CommandProvider {
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
                        .inRange(0, 65_535));
    }

    @Override
    public int run(CommandProvider.Context context) {
        var options = context.options();
        var host = options.string("host");
        try (var server = MetadataServer.start(host, Math.toIntExact(options.integer("port")))) {
            var url = server.connection();
            context.serveUntilStopped("serving metadata on " + url, Map.of("url", url));
        }
        return 0;
    }
}
