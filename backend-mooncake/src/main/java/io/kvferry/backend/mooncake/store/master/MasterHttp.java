// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.master;

import io.kvferry.backend.mooncake.store.remote.StoreHttp;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.secret.FleetSecret;

import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/// The master's HTTP port: `/health`, `/metrics` and, for who signs with the fleet's secret where
/// there is one, `/owners` (segment, address, bytes and epoch of each) and `/get_all_segments`.
///
/// Threading: requests run on virtual threads.
public final class MasterHttp implements AutoCloseable, StoreHttp.Pages {
    private final StoreMaster master;
    private final StoreHttp port;

    /// Starts it; port 0 lets the system choose.
    ///
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#IO] when the address cannot be bound
    public MasterHttp(StoreMaster master, Optional<FleetSecret> secret, String host, int port) {
        this.master = master;
        this.port = new StoreHttp("kvferry-master-http", this, secret, host, port);
    }

    /// `http://host:port`
    public String url() {
        return port.url();
    }

    @Override
    public boolean isHealthy() {
        return master.trouble().isEmpty();
    }

    @Override
    public Map<String, Long> gauges() {
        return master.gauges();
    }

    @Override
    public Map<String, Long> counters() {
        return master.counters();
    }

    @Override
    public Optional<Supplier<String>> page(String path) {
        return switch (path) {
            case "/owners" ->
                    Optional.of(() ->
                            lines(owner ->
                                    owner.segment()
                                            + "\t"
                                            + owner.address()
                                            + "\t"
                                            + owner.capacity()
                                            + "\t"
                                            + owner.epoch()));
            case "/get_all_segments" -> Optional.of(() -> lines(ListedOwner::segment));
            default -> Optional.empty();
        };
    }

    private String lines(Function<ListedOwner, String> line) {
        return master.owners().owners().stream()
                .map(owner -> line.apply(owner) + "\n")
                .collect(Collectors.joining());
    }

    @Override
    public void close() {
        port.close();
    }
}
