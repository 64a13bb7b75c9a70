// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import com.sun.net.httpserver.HttpExchange;

import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.net.HostNames;
import io.kvferry.toolkit.net.HttpPort;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.secret.HttpSignature;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/// A small HTTP metadata server with the behaviour of the one inside `mooncake_master`:
/// `/metadata?key=` with GET, PUT and DELETE, and `/health`. A second, different `rpc_meta`
/// document under one key is refused with 400; an identical one is accepted, so that a node may
/// repeat itself. State is in memory and bounded.
///
/// With a secret of the fleet, requests for documents must be signed with it ([HttpSignature]),
/// which Mooncake's processes cannot; all others are answered with 401.
///
/// Threading: requests run on virtual threads.
public final class MetadataServer implements AutoCloseable {
    private static final int MOST_KEYS = 100_000;
    private static final int MOST_BYTES = 16 << 20;
    private static final int MOST_KEY_CHARACTERS = 4096;

    /// Of all documents; at most a quarter of the heap.
    private static final long MOST_STORED_BYTES = 1L << 30;

    private static final long MOST_ARRIVING_BYTES = 256L << 20;
    private static final int PART_BYTES = 16 << 10;
    private static final int MOST_REQUESTS = 256;
    private static final Duration REQUEST_LIMIT = Duration.ofSeconds(20);

    private static final String UNSIGNED = "not signed with the secret of this fleet";

    private final Map<String, byte[]> documents = new ConcurrentHashMap<>();
    private final ByteBudget room = ByteBudget.ofHeap(MOST_STORED_BYTES, 4);

    /// For documents on their way in.
    private final ByteBudget arriving = ByteBudget.ofHeap(MOST_ARRIVING_BYTES, 8);

    private final Optional<FleetSecret> secret;
    private HttpPort http;

    @SuppressWarnings("NullAway.Init") // set before it is published
    private MetadataServer(Optional<FleetSecret> secret) {
        this.secret = secret;
    }

    /// Starts a server without a secret, which serves any client; port 0 lets the system choose.
    ///
    /// @throws KvFerryException [ErrorCode#IO] when the address cannot be bound
    public static MetadataServer start(String host, int port) {
        return start(host, port, Optional.empty());
    }

    /// As [#start(String, int)], for those who know the secret.
    public static MetadataServer start(String host, int port, Optional<FleetSecret> secret) {
        try {
            var server = new MetadataServer(secret);
            server.http =
                    HttpPort.start(
                            "kvferry-metadata",
                            HostNames.SYSTEM.socketAddress(host, port),
                            REQUEST_LIMIT,
                            MOST_REQUESTS,
                            server::serve);
            return server;
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    "cannot listen on "
                            + host
                            + ":"
                            + port
                            + " ("
                            + e.getMessage()
                            + "); choose another port, or as host an address of this machine",
                    e);
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
        if (secret.isPresent() && !exchange.getRequestHeaders().containsKey(HttpSignature.HEADER)) {
            reply(exchange, 401, UNSIGNED); // nothing of it is read
            return;
        }
        var body = new ByteArrayOutputStream();
        try {
            if (receive(exchange, body)) {
                serve(exchange, body.toByteArray());
            } else {
                reply(exchange, 503, "busy");
            }
        } finally {
            arriving.give(body.size());
        }
    }

    /// Reads a document, or as much of it as shows that it is too long; false when too many are on
    /// their way.
    private boolean receive(HttpExchange exchange, ByteArrayOutputStream body) throws IOException {
        var in = exchange.getRequestBody();
        var part = new byte[PART_BYTES];
        for (int got = in.read(part); got > 0 && body.size() <= MOST_BYTES; got = in.read(part)) {
            if (!arriving.take(got)) {
                return false;
            }
            body.write(part, 0, got);
        }
        return true;
    }

    private void serve(HttpExchange exchange, byte[] body) throws IOException {
        String key = key(exchange);
        if (secret.isPresent() && !isSigned(exchange, body, secret.get())) {
            reply(exchange, 401, UNSIGNED);
        } else if (!exchange.getRequestURI().getPath().equals("/metadata")) {
            reply(exchange, 404, "not found");
        } else if (key.isEmpty()) {
            reply(exchange, 400, "metadata key is required");
        } else {
            switch (exchange.getRequestMethod()) {
                case "GET" -> get(exchange, key);
                case "PUT" -> put(exchange, key, body);
                case "DELETE" -> delete(exchange, key);
                default -> reply(exchange, 405, "Method not allowed");
            }
        }
    }

    private static boolean isSigned(HttpExchange exchange, byte[] body, FleetSecret secret) {
        return HttpSignature.verifies(
                secret,
                String.valueOf(exchange.getRequestHeaders().getFirst(HttpSignature.HEADER)),
                exchange.getRequestMethod(),
                exchange.getRequestURI().toString(),
                body);
    }

    private void delete(HttpExchange exchange, String key) throws IOException {
        byte[] removed = documents.remove(key);
        if (removed == null) {
            reply(exchange, 404, "metadata not found");
        } else {
            room.give(cost(key, removed));
            reply(exchange, 200, "metadata deleted");
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

    private void put(HttpExchange exchange, String key, byte[] document) throws IOException {
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
