// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/// A small HTTP metadata server with the behaviour of the one inside `mooncake_master`:
/// `/metadata?key=` with GET, PUT and DELETE, and `/health`. A second, different `rpc_meta`
/// document under one key is refused with 400; an identical one is accepted, so that a node may
/// repeat itself. State is in memory and bounded.
///
/// Threading: requests run on virtual threads.
public final class MetadataServer implements AutoCloseable {
    private static final int MOST_KEYS = 100_000;
    private static final int MOST_BYTES = 16 << 20;

    private final Map<String, byte[]> documents = new ConcurrentHashMap<>();
    private final HttpServer http;
    private final ExecutorService executor;

    private MetadataServer(HttpServer http) {
        this.http = http;
        this.executor =
                Executors.newThreadPerTaskExecutor(
                        Thread.ofVirtual().name("kvferry-metadata-", 0).factory());
    }

    /// Starts a server; port 0 lets the system choose.
    ///
    /// @throws KvFerryException [ErrorCode#IO] when the address cannot be bound
    public static MetadataServer start(String host, int port) {
        try {
            var server =
                    new MetadataServer(HttpServer.create(new InetSocketAddress(host, port), 128));
            server.http.createContext("/metadata", server::metadata);
            server.http.createContext("/health", exchange -> reply(exchange, 200, "OK"));
            server.http.setExecutor(server.executor);
            server.http.start();
            return server;
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.IO, "cannot listen on " + host + ":" + port + ": " + e, e);
        }
    }

    /// The connection string for engines on this host.
    public String connection() {
        return "http://"
                + new HostPort(http.getAddress().getHostString(), http.getAddress().getPort())
                + "/metadata";
    }

    private void metadata(HttpExchange exchange) throws IOException {
        String key = key(exchange);
        if (!exchange.getRequestURI().getPath().equals("/metadata")) {
            reply(exchange, 404, "not found");
        } else if (key.isEmpty()) {
            reply(exchange, 400, "metadata key is required");
        } else {
            switch (exchange.getRequestMethod()) {
                case "GET" -> get(exchange, key);
                case "PUT" -> put(exchange, key);
                case "DELETE" -> {
                    boolean found = documents.remove(key) != null;
                    reply(
                            exchange,
                            found ? 200 : 404,
                            found ? "metadata deleted" : "metadata not found");
                }
                default -> reply(exchange, 405, "Method not allowed");
            }
        }
    }

    private void get(HttpExchange exchange, String key) throws IOException {
        byte[] document = documents.get(key);
        if (document == null) {
            reply(exchange, 404, "metadata not found");
        } else {
            reply(exchange, 200, document);
        }
    }

    private void put(HttpExchange exchange, String key) throws IOException {
        byte[] document = exchange.getRequestBody().readNBytes(MOST_BYTES + 1);
        if (document.length > MOST_BYTES
                || documents.size() >= MOST_KEYS && !documents.containsKey(key)) {
            reply(exchange, 413, "metadata too large");
            return;
        }
        boolean unique = key.contains("rpc_meta");
        byte[] kept = documents.compute(key, (_, old) -> unique && old != null ? old : document);
        if (kept != document && !Arrays.equals(kept, document)) {
            reply(exchange, 400, "Duplicate rpc_meta key not allowed");
        } else {
            reply(exchange, 200, "metadata updated");
        }
    }

    private static String key(HttpExchange exchange) {
        String query = exchange.getRequestURI().getRawQuery();
        if (query != null) {
            for (String part : query.split("&", -1)) {
                if (part.startsWith("key=")) {
                    return URLDecoder.decode(part.substring(4), StandardCharsets.UTF_8).strip();
                }
            }
        }
        return "";
    }

    private static void reply(HttpExchange exchange, int status, String text) throws IOException {
        reply(exchange, status, text.getBytes(StandardCharsets.UTF_8));
    }

    private static void reply(HttpExchange exchange, int status, byte[] body) throws IOException {
        try (exchange) {
            exchange.getResponseHeaders().set("Content-Type", "application/json");
            exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
            exchange.getResponseBody().write(body);
        }
    }

    @Override
    public void close() {
        http.stop(0);
        executor.shutdownNow();
    }
}
