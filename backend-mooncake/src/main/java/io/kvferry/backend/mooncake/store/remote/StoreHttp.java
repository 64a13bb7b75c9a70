// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import com.sun.net.httpserver.HttpExchange;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HostNames;
import io.kvferry.toolkit.net.HttpPort;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.secret.HttpSignature;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;

/// The HTTP port of an owner or a master: `/health`, `/metrics`, and pages for who signs with the
/// fleet's secret where there is one.
///
/// Threading: requests run on virtual threads.
public final class StoreHttp implements AutoCloseable {
    private static final Duration LIMIT = Duration.ofSeconds(20);
    private static final int MOST_REQUESTS = 64;
    private static final String TEXT = "text/plain; version=0.0.4";
    private static final String JSON = "application/json; charset=utf-8";

    private final Pages pages;
    private final Optional<FleetSecret> secret;
    private final HttpPort port;

    /// What the port shows.
    public interface Pages {
        /// Whether the process does its work.
        boolean isHealthy();

        /// Metrics that go up and down.
        Map<String, Long> gauges();

        /// Metrics that only go up.
        Map<String, Long> counters();

        /// Another page, computed only for a client that is permitted to read it; empty for an
        /// unknown path.
        Optional<Supplier<String>> page(String path);
    }

    /// Starts it; port 0 lets the system choose.
    ///
    /// @param name of its threads
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] when the address cannot be bound
    public StoreHttp(
            String name, Pages pages, Optional<FleetSecret> secret, String host, int port) {
        this.pages = pages;
        this.secret = secret;
        try {
            this.port =
                    HttpPort.start(
                            name,
                            HostNames.SYSTEM.socketAddress(host, port),
                            LIMIT,
                            MOST_REQUESTS,
                            this::serve);
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    "cannot listen on "
                            + host
                            + ":"
                            + port
                            + " ("
                            + e.getMessage()
                            + "); choose another http_port, or as http_host an address of this machine",
                    e);
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
        String path = exchange.getRequestURI().getPath();
        switch (path) {
            case "/health" -> health(exchange);
            case "/metrics" -> reply(exchange, 200, TEXT, metrics());
            default -> {
                var page = pages.page(path);
                if (page.isPresent()) {
                    signed(exchange, page.get());
                } else {
                    reply(exchange, 404, TEXT, "not found\n");
                }
            }
        }
    }

    private void signed(HttpExchange exchange, Supplier<String> text) throws IOException {
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

    private void health(HttpExchange exchange) throws IOException {
        boolean healthy = pages.isHealthy();
        reply(
                exchange,
                healthy ? 200 : 503,
                JSON,
                healthy
                        ? "{\"status\":\"ok\",\"role\":\"leader\",\"service_ready\":true}"
                        : "{\"status\":\"unavailable\",\"service_ready\":false}");
    }

    private String metrics() {
        var text = new StringBuilder();
        write(text, "gauge", pages.gauges());
        write(text, "counter", pages.counters());
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
