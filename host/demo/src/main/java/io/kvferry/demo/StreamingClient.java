// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.Json;

import tools.jackson.databind.JsonNode;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// Sends turns as streaming chat requests and takes the times.
///
/// Threading: any thread.
final class StreamingClient implements AutoCloseable {
    private final URI base;
    private final Duration limit;
    private final HttpClient client =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    /// @param limit for the status line of a request; the router's idle limit covers the stream
    StreamingClient(URI base, Duration limit) {
        this.base = base;
        this.limit = limit;
    }

    /// Runs one turn; a failure is recorded in the sample.
    Sample send(Turn turn) throws InterruptedException {
        var reading = new Reading(turn, System.nanoTime());
        var request =
                HttpRequest.newBuilder(base.resolve("/v1/chat/completions"))
                        .timeout(limit)
                        .header("Content-Type", "application/json")
                        .header("X-Request-Id", "demo-" + turn.conversation() + "-" + turn.index())
                        .POST(BodyPublishers.ofString(body(turn)))
                        .build();
        try {
            var response = client.send(request, BodyHandlers.ofInputStream());
            reading.read(response);
        } catch (IOException e) {
            reading.error = e.toString();
        }
        return reading.sample();
    }

    private static String body(Turn turn) {
        var json =
                Json.object()
                        .put("stream", true)
                        .put("temperature", 0)
                        .put("ignore_eos", true)
                        .put("return_token_ids", true)
                        .put("max_tokens", turn.expected().length);
        var messages = json.putArray("messages");
        turn.messages()
                .forEach(m ->
                        messages.addObject().put("role", m.role()).put("content", m.content()));
        return Json.text(json);
    }

    /// One response being read.
    private static final class Reading {
        private final Turn turn;
        private final long startNanos;
        private final List<Integer> tokens = new ArrayList<>();
        private final List<Long> gaps = new ArrayList<>();
        private String error = "the stream ended without [DONE]";
        private long ttftNanos;
        private long lastNanos;

        Reading(Turn turn, long startNanos) {
            this.turn = turn;
            this.startNanos = startNanos;
        }

        void read(HttpResponse<InputStream> response) throws IOException {
            try (var lines =
                    new BufferedReader(
                            new InputStreamReader(response.body(), StandardCharsets.UTF_8))) {
                if (response.statusCode() != 200) {
                    error = "status " + response.statusCode() + ": " + lines.readLine();
                    return;
                }
                for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                    if (line.equals("data: [DONE]")) {
                        error = error.startsWith("the stream ended") ? "" : error;
                    } else if (line.startsWith("data: ")) {
                        event(line.substring(6));
                    }
                }
            }
        }

        private void event(String data) throws IOException {
            JsonNode json;
            try {
                json = Json.parseObject(data.getBytes(StandardCharsets.UTF_8));
            } catch (HttpProblem e) {
                throw new IOException("an event that is not JSON: " + data, e);
            }
            if (json.has("error")) {
                error = json.at("/error/message").asString("unknown error");
            }
            for (var id : json.at("/choices/0/token_ids")) {
                token(id.asInt());
            }
        }

        private void token(int id) {
            long now = System.nanoTime();
            if (tokens.isEmpty()) {
                ttftNanos = now - startNanos;
            } else {
                gaps.add(now - lastNanos);
            }
            lastNanos = now;
            tokens.add(id);
        }

        Sample sample() {
            int[] ids = tokens.stream().mapToInt(Integer::intValue).toArray();
            return new Sample(turn, ids, error, ttftNanos, gaps);
        }
    }

    @Override
    public void close() {
        client.shutdownNow();
    }
}
