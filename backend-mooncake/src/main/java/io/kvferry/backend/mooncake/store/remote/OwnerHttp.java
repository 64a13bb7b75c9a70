// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import com.sun.net.httpserver.HttpExchange;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HttpPort;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.secret.HttpSignature;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
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
public final class OwnerHttp implements AutoCloseable {
    private static final Duration LIMIT = Duration.ofSeconds(20);
    private static final int MOST_REQUESTS = 64;
    private static final String TEXT = "text/plain; version=0.0.4";

    private final StoreOwner owner;
    private final Optional<FleetSecret> secret;
    private final HttpPort port;

    /// Starts it; port 0 lets the system choose.
    ///
    /// @throws KvFerryException [ErrorCode#IO] when the address cannot be bound
    public OwnerHttp(StoreOwner owner, Optional<FleetSecret> secret, String host, int port) {
        this.owner = owner;
        this.secret = secret;
        try {
            this.port =
                    HttpPort.start(
                            "kvferry-owner-http",
                            new InetSocketAddress(host, port),
                            LIMIT,
                            MOST_REQUESTS,
                            this::serve);
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.IO, "cannot listen on " + host + ":" + port + ": " + e, e);
        }
    }

    /// `http://host:port`
    public String url() {
        String host = port.address().getHostString();
        return "http://"
                + (host.contains(":") ? "[" + host + "]" : host)
                + ":"
                + port.address().getPort();
    }

    private void serve(HttpExchange exchange) throws IOException {
        switch (exchange.getRequestURI().getPath()) {
            case "/health" -> health(exchange);
            case "/metrics" -> reply(exchange, 200, TEXT, metrics());
            case "/get_all_keys" -> listed(exchange, this::keys);
            case "/get_all_segments" ->
                    listed(exchange, () -> String.join("\n", owner.store().segmentNames()) + "\n");
            default -> reply(exchange, 404, TEXT, "not found\n");
        }
    }

    /// @param text looked up for who may read it, and for nobody else
    private void listed(HttpExchange exchange, Supplier<String> text) throws IOException {
        boolean known =
                secret.isEmpty()
                        || HttpSignature.verifies(
                                secret.get(),
                                String.valueOf(
                                        exchange.getRequestHeaders()
                                                .getFirst(HttpSignature.HEADER)),
                                exchange.getRequestMethod(),
                                exchange.getRequestURI().toString(),
                                new byte[0]);
        reply(
                exchange,
                known ? 200 : 401,
                TEXT,
                known ? text.get() : "not signed with the secret of this fleet\n");
    }

    private String keys() {
        var keys = new TreeSet<String>();
        for (StoreIdentity identity : owner.store().identities()) {
            keys.addAll(owner.store().keys(identity));
        }
        return keys.stream().map(key -> key + "\n").collect(Collectors.joining());
    }

    private void health(HttpExchange exchange) throws IOException {
        Optional<String> trouble = owner.trouble();
        reply(
                exchange,
                trouble.isEmpty() ? 200 : 503,
                "application/json; charset=utf-8",
                trouble.isEmpty()
                        ? "{\"status\":\"ok\",\"role\":\"leader\",\"service_ready\":true}"
                        : "{\"status\":\"unavailable\",\"service_ready\":false}");
    }

    private String metrics() {
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
        var text = new StringBuilder();
        write(text, "gauge", gauges);
        write(text, "counter", store.counters());
        return text.toString();
    }

    private static void write(StringBuilder text, String type, Map<String, Long> values) {
        values.forEach((name, value) ->
                text.append("# TYPE ")
                        .append(name)
                        .append(' ')
                        .append(type)
                        .append('\n')
                        .append(name)
                        .append(' ')
                        .append(value)
                        .append('\n'));
    }

    private static void reply(HttpExchange exchange, int status, String type, String text)
            throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", type);
        exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
        var out = exchange.getResponseBody();
        out.write(body);
        out.close();
    }

    @Override
    public void close() {
        port.close();
    }
}
