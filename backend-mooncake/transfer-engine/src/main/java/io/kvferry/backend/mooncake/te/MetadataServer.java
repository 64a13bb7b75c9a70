// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import com.sun.net.httpserver.HttpExchange;

import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.net.HttpPort;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/// A small HTTP metadata server with the behaviour of the one inside `mooncake_master`:
/// `/metadata?key=` with GET, PUT and DELETE, and `/health`. A second, different `rpc_meta`
/// document under one key is refused with 400; an identical one is accepted, so that a node may
/// repeat itself. State is in memory and bounded.
///
/// Threading: requests run on virtual threads.
public final class MetadataServer implements AutoCloseable {
    private static final int MOST_KEYS = 100_000;
    private static final int MOST_BYTES = 16 << 20;
    private static final int MOST_KEY_CHARACTERS = 4096;

    /// Of all documents; at most a quarter of the heap.
    private static final long MOST_STORED_BYTES = 1L << 30;

    private static final int MOST_REQUESTS = 256;
    private static final Duration REQUEST_LIMIT = Duration.ofSeconds(20);

    private final Map<String, byte[]> documents = new ConcurrentHashMap<>();
    private final ByteBudget room = ByteBudget.ofHeap(MOST_STORED_BYTES, 4);
    private HttpPort http;

    @SuppressWarnings("NullAway.Init") // started before anybody sees it
    private MetadataServer() {}

    /// Starts a server; port 0 lets the system choose.
    ///
    /// @throws KvFerryException [ErrorCode#IO] when the address cannot be bound
    public static MetadataServer start(String host, int port) {
        try {
            var server = new MetadataServer();
            server.http =
                    HttpPort.start(
                            "kvferry-metadata",
                            new InetSocketAddress(host, port),
                            REQUEST_LIMIT,
                            MOST_REQUESTS,
                            server::serve);
            return server;
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.IO, "cannot listen on " + host + ":" + port + ": " + e, e);
        }
    }

    /// The connection string for engines on this host.
    public String connection() {
        return "http://"
                + new HostPort(http.address().getHostString(), http.address().getPort())
                + "/metadata";
    }

    private void serve(HttpExchange exchange) throws IOException {
        if (exchange.getRequestURI().getPath().equals("/health")) {
            reply(exchange, 200, "OK");
            return;
        }
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
                    byte[] removed = documents.remove(key);
                    boolean found = removed != null;
                    if (removed != null) {
                        room.give(cost(key, removed));
                    }
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
                || key.length() > MOST_KEY_CHARACTERS
                || documents.size() >= MOST_KEYS && !documents.containsKey(key)
                || !room.take(cost(key, document))) {
            reply(exchange, 413, "metadata too large");
            return;
        }
        boolean unique = key.contains("rpc_meta");
        byte[] kept =
                documents.compute(
                        key,
                        (_, old) -> {
                            boolean keep = unique && old != null;
                            if (old != null) { // one of the two goes
                                room.give(cost(key, keep ? document : old));
                            }
                            return keep ? old : document;
                        });
        if (kept != document && !Arrays.equals(kept, document)) {
            reply(exchange, 400, "Duplicate rpc_meta key not allowed");
        } else {
            reply(exchange, 200, "metadata updated");
        }
    }

    private static long cost(String key, byte[] document) {
        return 128 + 2L * key.length() + document.length;
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
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
        var out = exchange.getResponseBody();
        out.write(body);
        out.close();
    }

    @Override
    public void close() {
        http.close();
    }
}
