// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.backend.mooncake.store.master.OwnerMembership;
import io.kvferry.backend.mooncake.store.remote.OwnerHttp;
import io.kvferry.backend.mooncake.store.remote.StoreOwner;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;

import java.util.Map;
import java.util.Optional;

/// `kvferry owner`: a store for the engines of this host, and of others, that outlives them.
public final class OwnerCommand implements CommandProvider {
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
        return OptionSchema.of(OwnerOptions.all().toArray(Option[]::new));
    }

    @Override
    public int run(CommandProvider.Context context) {
        var options = context.options();
        var settings = OwnerOptions.settings(options);
        int httpPort = Math.toIntExact(options.integer("http_port"));
        var master = OwnerOptions.master(options, settings);
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
