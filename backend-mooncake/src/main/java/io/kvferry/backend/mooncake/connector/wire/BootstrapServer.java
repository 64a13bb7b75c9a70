// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/// The HTTP service by which decoders and routers find prefillers: `POST /register`, `GET /query`.
/// Understood by vLLM's decoders and prefillers.
///
/// Beyond vLLM's: a worker that is gone can be replaced, kvferry workers expire unless they renew,
/// and an engine of known size is listed only when all its ranks are.
///
/// Threading: a virtual thread per request; any thread may call.
public final class BootstrapServer implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(BootstrapServer.class);
    private static final int MAX_BODY_BYTES = 1 << 16;
    private static final int MAX_SKIPPED_BYTES = 1 << 20;
    private static final int MAX_CONCURRENT = 256;
    private static final Duration PROBE_LIMIT = Duration.ofMillis(500);

    /// For a body of one network packet.
    private static final Duration BODY_LIMIT = Duration.ofSeconds(10);

    /// A kvferry decoder sends it with `/query`.
    static final String KVFERRY_HEADER = "X-Kvferry";

    private final HttpServer server;
    private final Duration bodyLimit;
    private final ExecutorService threads;
    private final ScheduledThreadPoolExecutor clock;
    private final BootstrapRegistry registry = new BootstrapRegistry(System::nanoTime);
    private final Semaphore slots = new Semaphore(MAX_CONCURRENT);

    private BootstrapServer(HttpServer server, Duration bodyLimit) {
        this.server = server;
        this.bodyLimit = bodyLimit;
        this.threads =
                Executors.newThreadPerTaskExecutor(
                        Thread.ofVirtual().name("mooncake-bootstrap-", 0).factory());
        this.clock =
                new ScheduledThreadPoolExecutor(
                        1, Thread.ofPlatform().name("mooncake-bootstrap-clock").daemon().factory());
        clock.setRemoveOnCancelPolicy(true);
        server.setExecutor(threads);
        server.createContext("/", this::serve);
    }

    /// Listens on `host:port`; port 0 takes a free one.
    ///
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] when the port is busy
    public static BootstrapServer start(String host, int port) {
        return start(host, port, BODY_LIMIT);
    }

    static BootstrapServer start(String host, int port, Duration bodyLimit) {
        try {
            var started =
                    new BootstrapServer(
                            HttpServer.create(new InetSocketAddress(host, port), 128), bodyLimit);
            started.server.start();
            return started;
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    "Mooncake bootstrap server cannot listen on "
                            + host
                            + ":"
                            + port
                            + " ("
                            + e.getMessage()
                            + "); set bootstrap_port to a free one",
                    e);
        }
    }

    public int port() {
        return server.getAddress().getPort();
    }

    @Override
    public void close() {
        server.stop(0);
        threads.shutdownNow();
        clock.shutdownNow();
    }

    private void serve(HttpExchange exchange) throws IOException {
        try (exchange) {
            var body = body(exchange);
            switch (exchange.getRequestURI().getPath()) {
                case "/register" -> {
                    if (expect(exchange, "POST")) {
                        register(exchange, body);
                    }
                }
                case "/query" -> {
                    if (expect(exchange, "GET")) {
                        boolean toKvferry =
                                exchange.getRequestHeaders().containsKey(KVFERRY_HEADER);
                        answer(exchange, 200, BootstrapJson.write(registry.entries(), toKvferry));
                    }
                }
                default -> answer(exchange, 404, BootstrapJson.detail("Not Found"));
            }
        }
    }

    /// The request's body, or as much of it as shows that it is too long. Reads to its end, since
    /// closing an exchange would wait for that too, without limit.
    private byte[] body(HttpExchange exchange) throws IOException {
        var late = clock.schedule(exchange::close, bodyLimit.toMillis(), TimeUnit.MILLISECONDS);
        try {
            var in = exchange.getRequestBody();
            var body = in.readNBytes(MAX_BODY_BYTES + 1);
            if (in.skip(MAX_SKIPPED_BYTES) == MAX_SKIPPED_BYTES) {
                throw new IOException("a body without end");
            }
            return body;
        } finally {
            late.cancel(false);
        }
    }

    private static boolean expect(HttpExchange exchange, String method) throws IOException {
        if (exchange.getRequestMethod().equals(method)) {
            return true;
        }
        exchange.getResponseHeaders().set("Allow", method);
        answer(exchange, 405, BootstrapJson.detail("Method Not Allowed"));
        return false;
    }

    private void register(HttpExchange exchange, byte[] body) throws IOException {
        if (body.length > MAX_BODY_BYTES) {
            answer(
                    exchange,
                    413,
                    BootstrapJson.detail("body is over " + MAX_BODY_BYTES + " bytes"));
            return;
        }
        var type = exchange.getRequestHeaders().getFirst("Content-Type");
        if (type == null || !type.startsWith("application/json")) {
            answer(exchange, 422, BootstrapJson.detail("Content-Type must be application/json"));
            return;
        }
        WorkerRegistration registration;
        try {
            registration = BootstrapJson.readRegistration(body);
        } catch (KvFerryException e) {
            answer(exchange, 422, BootstrapJson.detail(String.valueOf(e.getMessage())));
            return;
        }
        if (!slots.tryAcquire()) { // each may try to reach somebody
            answer(exchange, 503, BootstrapJson.detail("busy"));
            return;
        }
        BootstrapRegistry.Offer offer;
        try {
            offer = settle(registration);
        } finally {
            slots.release();
        }
        switch (offer) {
            case BootstrapRegistry.Accepted() -> answer(exchange, 200, "{\"status\":\"ok\"}");
            case BootstrapRegistry.Occupied(var reason, _, _) ->
                    answer(exchange, 400, BootstrapJson.detail(reason));
        }
    }

    private BootstrapRegistry.Offer settle(WorkerRegistration registration) {
        var offer = registry.offer(registration);
        if (offer instanceof BootstrapRegistry.Occupied occupied
                && !occupied.holders().isEmpty()
                && occupied.holders().stream().noneMatch(BootstrapServer::alive)) {
            LOG.info(
                    "{}, but nobody answers there: replaced by {}",
                    occupied.reason(),
                    registration.addr());
            return registry.replace(registration, occupied);
        }
        return offer;
    }

    /// Whether something accepts connections at a `tcp://host:port` address.
    private static boolean alive(String address) {
        try (var socket = new Socket()) {
            var uri = URI.create(address);
            if (uri.getHost() == null || uri.getPort() < 1) {
                return false;
            }
            socket.connect(
                    new InetSocketAddress(uri.getHost(), uri.getPort()),
                    (int) PROBE_LIMIT.toMillis());
            return true;
        } catch (IOException | IllegalArgumentException e) {
            LOG.debug("no answer at {}: {}", address, e.toString());
            return false;
        }
    }

    private static void answer(HttpExchange exchange, int status, String json) throws IOException {
        var bytes = json.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().put("Content-Type", List.of("application/json"));
        exchange.sendResponseHeaders(status, bytes.length);
        exchange.getResponseBody().write(bytes);
    }
}
