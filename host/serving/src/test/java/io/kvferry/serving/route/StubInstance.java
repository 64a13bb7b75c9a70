// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.HttpCall;
import io.kvferry.serving.http.HttpService;
import io.kvferry.serving.http.Json;
import io.kvferry.serving.http.TestClient;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/// An upstream whose answers a test writes; remembers what it was asked.
final class StubInstance implements AutoCloseable {
    final BlockingQueue<Seen> seen = new LinkedBlockingQueue<>();

    /// Tokens of holds that the router gave back.
    final BlockingQueue<String> released = new LinkedBlockingQueue<>();

    volatile int health = 200;

    /// The handler of `/tokenize`.
    volatile HttpService.Handler tokenize = json(404, "{}");

    private final HttpService http = new HttpService("stub", TestClient.loopback(64, 1 << 20));

    record Seen(HttpCall call, ObjectNode body) {
        JsonNode params() {
            return body.path("kv_transfer_params");
        }
    }

    StubInstance(HttpService.Handler answer) {
        http.route(
                "POST",
                "/v1/completions",
                call -> {
                    seen.add(new Seen(call, Json.parseObject(call.body())));
                    answer.handle(call);
                });
        http.routeAdmin("POST", "/tokenize", call -> tokenize.handle(call));
        http.routeAdmin("/health", call -> call.respondText(health, "text/plain", "ok"));
        http.routeAdmin(
                "POST",
                "/kvferry/release_hold",
                call -> {
                    released.add(Json.parseObject(call.body()).path("hold").asString());
                    call.respondText(200, "application/json", "{}");
                });
        http.start();
    }

    URI uri() {
        return TestClient.uri(http.port(), "");
    }

    static HttpService.Handler json(int status, String json) {
        return call -> call.respondText(status, "application/json", json);
    }

    /// Streams the pieces, then ends.
    static HttpService.Handler stream(String... pieces) {
        return call -> {
            try (var out = call.stream(200, "text/event-stream")) {
                for (var piece : pieces) {
                    out.write(piece.getBytes(StandardCharsets.UTF_8));
                    out.flush();
                }
            }
        };
    }

    @Override
    public void close() {
        http.close();
    }
}
