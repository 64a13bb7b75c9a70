// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.Json;
import io.kvferry.toolkit.net.HttpExchanges;
import io.kvferry.toolkit.net.LastingHttpClient;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.secret.HttpSignature;

import org.jspecify.annotations.Nullable;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;

/// Asks the bootstrap server of a prefill instance for its engines: `GET /query` answers `{"<dp
/// rank>": {"engine_id", "worker_addr": {"<tp rank>": {"<pp rank>": "tcp://..."}}}}`.
///
/// An answer is cached for [#KEEP] and dropped when a leg fails, so that a restarted instance,
/// which has a new engine id, is found again. Answers without all ranks, as during the start of an
/// instance, are refused: a decode instance would wait for ranks that are not listed. An engine
/// whose hand-offs fail is skipped for a while, unless it is the only one.
///
/// Threading: any thread.
final class Bootstrap {
    private static final Duration KEEP = Duration.ofSeconds(5);

    private final LastingHttpClient client;
    private final Duration timeout;
    private final Optional<FleetSecret> secret;
    private final AtomicInteger turn = new AtomicInteger();
    private final RestingEngines resting = new RestingEngines(System::nanoTime);
    final URI address;
    private volatile @Nullable Known known;

    /// One engine behind the bootstrap server.
    record Engine(String dpRank, String engineId) {}

    /// The bootstrap server does not answer, or knows no complete engine.
    static final class UnknownEngine extends Exception {
        private static final long serialVersionUID = 1L;

        UnknownEngine(IOException cause) {
            super(cause.getMessage(), cause);
        }
    }

    private record Known(List<Engine> engines, long untilNanos) {}

    /// @param secret signs the queries where there is one
    Bootstrap(
            LastingHttpClient client, URI address, Duration timeout, Optional<FleetSecret> secret) {
        this.secret = secret;
        this.client = client;
        this.address = address;
        this.timeout = timeout;
    }

    /// The next engine in turn, of those that work if any does.
    ///
    /// @throws UnknownEngine when the server does not answer, or not with at least one complete
    ///   engine
    Engine next() throws UnknownEngine, InterruptedException {
        var now = known;
        if (now == null || now.untilNanos - System.nanoTime() < 0) {
            try {
                now = new Known(query(), System.nanoTime() + KEEP.toNanos());
            } catch (IOException e) {
                throw new UnknownEngine(e);
            }
            known = now;
            resting.keepOnly(now.engines.stream().map(Engine::engineId).toList());
        }
        int first = Math.floorMod(turn.getAndIncrement(), now.engines.size());
        return resting.choose(now.engines, first, Engine::engineId);
    }

    /// A request has ended that was sent to an engine.
    ///
    /// @param handedOver whether its KV reached the decode instance
    void ended(Engine engine, boolean handedOver) {
        if (handedOver) {
            resting.worked(engine.engineId());
        } else {
            resting.failed(engine.engineId());
        }
    }

    void forget() {
        known = null;
    }

    private List<Engine> query() throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(address.resolve("/query")).timeout(timeout);
        secret.ifPresent(key ->
                request.header(
                        HttpSignature.HEADER,
                        HttpSignature.sign(key, "GET", "/query", new byte[0])));
        var response =
                HttpExchanges.send(
                        client.now(), request.build(), BodyHandlers.ofByteArray(), timeout);
        if (response.statusCode() != 200) {
            throw new IOException(
                    "bootstrap server " + address + " answered " + response.statusCode());
        }
        return parse(address, response.body());
    }

    static List<Engine> parse(URI address, byte[] body) throws IOException {
        JsonNode answer;
        try {
            answer = Json.parseObject(body);
        } catch (HttpProblem e) {
            throw new IOException("bootstrap server " + address + ": " + e.getMessage(), e);
        }
        var engines = new ArrayList<Engine>();
        for (var entry : answer.properties()) {
            var id = entry.getValue().path("engine_id").asString("");
            if (!id.isEmpty() && isComplete(entry.getValue().path("worker_addr"))) {
                engines.add(new Engine(entry.getKey(), id));
            }
        }
        if (engines.isEmpty()) {
            throw new IOException("bootstrap server " + address + " knows no complete engine yet");
        }
        return engines;
    }

    /// Tensor ranks 0 to n - 1, each with the same pipeline ranks 0 to m - 1.
    private static boolean isComplete(JsonNode workers) {
        int stages = workers.path("0").size();
        for (int tp = 0; tp < workers.size(); tp++) {
            var ranks = workers.path(Integer.toString(tp));
            if (ranks.size() != stages) {
                return false;
            }
            for (int pp = 0; pp < stages; pp++) {
                if (ranks.path(Integer.toString(pp)).asString("").isEmpty()) {
                    return false;
                }
            }
        }
        return stages > 0;
    }
}
