// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.secret.FleetSecret;

import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/// The owner's HTTP port: `/health`, `/metrics` under the names of Mooncake's master, and, for who
/// signs with the fleet's secret where there is one, `/get_all_keys` and `/get_all_segments`.
///
/// Threading: requests run on virtual threads.
public final class OwnerHttp implements AutoCloseable, StoreHttp.Pages {
    private final StoreOwner owner;
    private final StoreHttp port;

    /// Starts it; port 0 lets the system choose.
    ///
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#IO] when the address cannot be bound
    public OwnerHttp(StoreOwner owner, Optional<FleetSecret> secret, String host, int port) {
        this.owner = owner;
        this.port = new StoreHttp("kvferry-owner-http", this, secret, host, port);
    }

    /// `http://host:port`
    public String url() {
        return port.url();
    }

    @Override
    public Optional<Supplier<String>> page(String path) {
        return switch (path) {
            case "/get_all_keys" -> Optional.of(this::keys);
            case "/get_all_segments" ->
                    Optional.of(() -> String.join("\n", owner.store().segmentNames()) + "\n");
            default -> Optional.empty();
        };
    }

    private String keys() {
        var keys = new TreeSet<String>();
        for (StoreIdentity identity : owner.store().identities()) {
            keys.addAll(owner.store().keys(identity));
        }
        return keys.stream().map(key -> key + "\n").collect(Collectors.joining());
    }

    @Override
    public boolean isHealthy() {
        return owner.trouble().isEmpty();
    }

    @Override
    public Map<String, Long> gauges() {
        var store = owner.store();
        var gauges = new TreeMap<String, Long>();
        gauges.put("master_allocated_bytes", store.usedBytes());
        gauges.put("master_total_capacity_bytes", store.capacity());
        gauges.put("master_key_count", store.keyCount());
        gauges.put("master_active_clients", (long) owner.users());
        gauges.putAll(store.gauges());
        store.recentUsage()
                .ifPresent(usage -> {
                    gauges.put("kvferry_store_leased_bytes", usage.leased());
                    gauges.put("kvferry_store_evictable_bytes", usage.evictable());
                    gauges.put("kvferry_store_soft_pinned_bytes", usage.softPinned());
                    gauges.put("kvferry_store_hard_pinned_bytes", usage.hardPinned());
                });
        return gauges;
    }

    @Override
    public Map<String, Long> counters() {
        return owner.store().counters();
    }

    @Override
    public void close() {
        port.close();
    }
}
