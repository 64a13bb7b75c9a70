// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

import com.sun.net.httpserver.HttpExchange;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HostNames;
import io.kvferry.toolkit.net.HttpPort;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.secret.HttpSignature;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.ReentrantLock;

/// The HTTP service through which decoders and routers find prefillers: `POST /register`, `GET
/// /query`. Compatible with vLLM's decoders and prefillers.
///
/// Beyond vLLM's: a dead worker can be replaced; no other engine can take the place of the engine
/// that runs the service, or add workers to an engine of another host; kvferry workers expire
/// unless they renew; an engine of known size is listed only when all its ranks are registered.
///
/// Threading: a virtual thread per request; any thread may call.
public final class BootstrapServer implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(BootstrapServer.class);
    private static final int MAX_BODY_BYTES = 1 << 16;
    private static final int MAX_SKIPPED_BYTES = 1 << 20;
    private static final int MAX_CONCURRENT = 256;
    private static final int MAX_PROBES = 64;

    /// Rounds of probes for one registration. A larger engine is replaced in several registrations.
    private static final int MOST_PARTS = 3;

    /// For headers and body of one network packet, and the answer.
    private static final Duration REQUEST_LIMIT = Duration.ofSeconds(10);

    /// A kvferry decoder sends it with `/query`.
    static final String KVFERRY_HEADER = "X-Kvferry";

    private final BootstrapRegistry registry;
    private final Semaphore probes = new Semaphore(MAX_PROBES);
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<Boolean, Listing> listings = new HashMap<>();
    private final LeaselessWatch watch;
    private final Optional<FleetSecret> secret;
    private HttpPort http;

    /// The answer to `/query` while the table stays as it is.
    private record Listing(long version, byte[] json) {}

    @SuppressWarnings("NullAway.Init") // set before it is published
    private BootstrapServer(Optional<FleetSecret> secret, Optional<ReservedEngine> own) {
        this.secret = secret;
        this.registry = new BootstrapRegistry(System::nanoTime, own);
        this.watch = new LeaselessWatch(registry);
    }

    /// Listens on `host:port`; port 0 takes a free one.
    ///
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] when the port is busy
    public static BootstrapServer start(String host, int port) {
        return start(host, port, REQUEST_LIMIT);
    }

    /// As [#start(String, int)], for requests that are signed with a secret.
    public static BootstrapServer start(String host, int port, Optional<FleetSecret> secret) {
        return start(host, port, REQUEST_LIMIT, secret, Optional.empty());
    }

    /// As [#start(String, int, Optional)], with the place of `own` reserved for its engine.
    public static BootstrapServer start(
            String host, int port, Optional<FleetSecret> secret, ReservedEngine own) {
        return start(host, port, REQUEST_LIMIT, secret, Optional.of(own));
    }

    static BootstrapServer start(String host, int port, Duration requestLimit) {
        return start(host, port, requestLimit, Optional.empty(), Optional.empty());
    }

    private static BootstrapServer start(
            String host,
            int port,
            Duration requestLimit,
            Optional<FleetSecret> secret,
            Optional<ReservedEngine> own) {
        var started = new BootstrapServer(secret, own);
        boolean listens = false;
        try {
            started.http =
                    HttpPort.start(
                            "mooncake-bootstrap",
                            HostNames.SYSTEM.socketAddress(host, port),
                            requestLimit,
                            MAX_CONCURRENT,
                            started::serve);
            listens = true;
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
        } finally {
            if (!listens) {
                started.watch.close();
            }
        }
    }

    public int port() {
        return http.address().getPort();
    }

    @Override
    public void close() {
        http.close();
        watch.close();
    }

    private void serve(HttpExchange exchange) throws IOException {
        var body = body(exchange);
        if (secret.isPresent() && !isSigned(exchange, body, secret.get())) {
            answer(exchange, 401, BootstrapJson.detail("not signed with the secret of this fleet"));
            return;
        }
        switch (exchange.getRequestURI().getPath()) {
            case "/register" -> {
                if (expect(exchange, "POST")) {
                    register(exchange, body);
                }
            }
            case "/query" -> {
                if (expect(exchange, "GET")) {
                    boolean toKvferry = exchange.getRequestHeaders().containsKey(KVFERRY_HEADER);
                    answer(exchange, 200, listing(toKvferry));
                }
            }
            default -> answer(exchange, 404, BootstrapJson.detail("Not Found"));
        }
    }

    private static boolean isSigned(HttpExchange exchange, byte[] body, FleetSecret secret) {
        var signature = exchange.getRequestHeaders().getFirst(HttpSignature.HEADER);
        return signature != null
                && HttpSignature.verifies(
                        secret,
                        signature,
                        exchange.getRequestMethod(),
                        exchange.getRequestURI().toString(),
                        body);
    }

    /// The request's body, or as much of it as shows that it is too long. Reads to its end, since
    /// closing an exchange would wait for that too, without limit.
    private byte[] body(HttpExchange exchange) throws IOException {
        var in = exchange.getRequestBody();
        var body = in.readNBytes(MAX_BODY_BYTES + 1);
        if (in.skip(MAX_SKIPPED_BYTES) == MAX_SKIPPED_BYTES) {
            throw new IOException("a body without end");
        }
        return body;
    }

    /// Written once for each state of the table, however many ask.
    private byte[] listing(boolean toKvferry) {
        lock.lock();
        try {
            long version = registry.version();
            var known = listings.get(toKvferry);
            if (known == null || known.version() != version) {
                var json = BootstrapJson.write(registry.entries(), toKvferry);
                known = new Listing(version, json.getBytes(StandardCharsets.UTF_8));
                listings.put(toKvferry, known);
            }
            return known.json();
        } finally {
            lock.unlock();
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
        var from = host(exchange);
        var offer = registry.offer(registration, from);
        if (offer instanceof BootstrapRegistry.Occupied occupied && !occupied.holders().isEmpty()) {
            if (!probes.tryAcquire()) {
                answer(exchange, 503, BootstrapJson.detail("busy"));
                return;
            }
            try {
                offer = replaceTheDead(registration, from, occupied);
            } finally {
                probes.release();
            }
        }
        switch (offer) {
            case BootstrapRegistry.Accepted() -> answer(exchange, 200, "{\"status\":\"ok\"}");
            case BootstrapRegistry.Occupied(var reason, _, _) ->
                    answer(exchange, 400, BootstrapJson.detail(reason));
        }
    }

    /// Why it cannot be reached; empty if it can.
    public Optional<String> trouble() {
        return http.trouble();
    }

    /// Where a request comes from. Processes of this host reach it over several addresses.
    private static String host(HttpExchange exchange) {
        var from = exchange.getRemoteAddress().getAddress();
        return from.isLoopbackAddress() || from.equals(exchange.getLocalAddress().getAddress())
                ? "this host"
                : from.getHostAddress();
    }

    /// May take seconds: it probes whether the holders answer. A large engine is probed in parts,
    /// so that only workers that were probed are removed.
    private BootstrapRegistry.Offer replaceTheDead(
            WorkerRegistration registration, String from, BootstrapRegistry.Occupied occupied) {
        BootstrapRegistry.Offer offer = occupied;
        for (int part = 0; part < MOST_PARTS; part++) {
            if (!(offer instanceof BootstrapRegistry.Occupied(var reason, var all, var version))
                    || all.isEmpty()) {
                return offer;
            }
            var holders = all.stream().limit(Probe.TOGETHER).toList();
            if (!Probe.answering(holders).isEmpty()) {
                return offer;
            }
            LOG.info("{}, but no holder answers: {} may replace it", reason, registration.addr());
            offer =
                    registry.replace(
                            registration,
                            from,
                            new BootstrapRegistry.Occupied(reason, holders, version));
        }
        return offer;
    }

    private static void answer(HttpExchange exchange, int status, String json) throws IOException {
        answer(exchange, status, json.getBytes(StandardCharsets.UTF_8));
    }

    private static void answer(HttpExchange exchange, int status, byte[] bytes) throws IOException {
        exchange.getResponseHeaders().put("Content-Type", List.of("application/json"));
        exchange.sendResponseHeaders(status, bytes.length);
        var out = exchange.getResponseBody();
        out.write(bytes);
        out.close();
    }
}
