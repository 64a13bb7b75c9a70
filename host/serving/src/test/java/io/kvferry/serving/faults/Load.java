// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.faults;

import io.kvferry.serving.http.Json;
import io.kvferry.serving.http.TestClient;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.io.InputStream;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;

/// Clients that ask a router for completions whose tokens are known, streamed and not; some hang up
/// in the middle. What a client may never see is noted: a wrong token, and a request that outlasts
/// its deadline.
///
/// Threading: any thread.
final class Load {
    /// Over the deadline of a request: for a router that is paused or just being started, on a busy
    /// machine.
    private static final Duration SLACK = Duration.ofSeconds(20);

    private static final int TOKENS = 8;

    private final int port;
    private final Map<String, List<Integer>> expected;
    private final List<String> prompts;
    private final Duration limit;
    private final HttpClient client =
            HttpClient.newBuilder()
                    .version(HttpClient.Version.HTTP_1_1)
                    .connectTimeout(Duration.ofSeconds(5))
                    .build();

    /// Violations of the contract that were seen.
    final Queue<String> violations = new ConcurrentLinkedQueue<>();

    /// How requests ended, by status or kind of failure.
    final Map<String, LongAdder> ends = new ConcurrentSkipListMap<>();

    /// One message of each kind of failure.
    final Map<String, String> messages = new ConcurrentSkipListMap<>();

    final AtomicLong longestMillis = new AtomicLong();

    /// @param expected tokens by prompt
    Load(int port, Map<String, List<Integer>> expected, Duration deadline) {
        this.port = port;
        this.expected = expected;
        this.prompts = List.copyOf(expected.keySet());
        this.limit = deadline.plus(SLACK);
    }

    static String body(String prompt, boolean stream) {
        return Json.text(
                Json.object()
                        .put("prompt", prompt)
                        .put("max_tokens", TOKENS)
                        .put("temperature", 0)
                        .put("ignore_eos", true)
                        .put("return_token_ids", true)
                        .put("stream", stream));
    }

    static List<Integer> ids(JsonNode answer) {
        var ids = new ArrayList<Integer>();
        answer.at("/choices/0/token_ids").forEach(id -> ids.add(id.asInt()));
        return ids;
    }

    /// Asks until it is over.
    void run(AtomicBoolean over, Random random) {
        while (!over.get()) {
            if (!once(random)) {
                pause();
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(20); // so that clients of a router that is down do not spin
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /// @return whether the answer came, and was whole and right
    boolean once(Random random) {
        var prompt = prompts.get(random.nextInt(prompts.size()));
        boolean stream = random.nextBoolean();
        boolean hangUp = stream && random.nextInt(5) == 0;
        long start = System.nanoTime();
        String end;
        try {
            end = stream ? stream(prompt, hangUp) : whole(prompt);
        } catch (HttpTimeoutException e) {
            violations.add("no end within " + limit + ": " + e);
            end = "hang";
        } catch (IOException e) {
            end = "broken";
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            end = "interrupted";
        }
        longestMillis.accumulateAndGet((System.nanoTime() - start) / 1_000_000, Math::max);
        ends.computeIfAbsent(end, _ -> new LongAdder()).increment();
        return end.equals("200");
    }

    private HttpRequest request(String prompt, boolean stream) {
        return HttpRequest.newBuilder(TestClient.uri(port, "/v1/completions"))
                .timeout(limit)
                .POST(BodyPublishers.ofString(body(prompt, stream)))
                .build();
    }

    private String whole(String prompt) throws IOException, InterruptedException {
        var response = client.send(request(prompt, false), BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            return problem(response.statusCode(), response.body());
        }
        check(prompt, ids(TestClient.json(response.body())), true);
        return "200";
    }

    private String stream(String prompt, boolean hangUp) throws IOException, InterruptedException {
        var response = client.send(request(prompt, true), BodyHandlers.ofInputStream());
        try (var body = response.body()) {
            if (response.statusCode() != 200) {
                return problem(
                        response.statusCode(),
                        new String(body.readAllBytes(), StandardCharsets.UTF_8));
            }
            if (hangUp) {
                int first = body.read();
                return first < 0 ? "empty" : "hung up";
            }
            return events(prompt, body);
        }
    }

    private String events(String prompt, InputStream body) throws IOException {
        var text = new StringBuilder();
        boolean broken = false;
        try {
            var buffer = new byte[4096];
            for (int n = body.read(buffer); n >= 0; n = body.read(buffer)) {
                text.append(new String(buffer, 0, n, StandardCharsets.UTF_8));
            }
        } catch (IOException e) {
            broken = true; // the router is gone: what came before must be right
        }
        var tokens = new ArrayList<Integer>();
        boolean done = false;
        boolean failed = false;
        int wholeEvents = text.lastIndexOf("\n\n");
        for (var event : TestClient.events(text.substring(0, Math.max(0, wholeEvents)))) {
            if (event.equals("[DONE]")) {
                done = true;
            } else if (TestClient.json(event).has("error")) {
                messages.put("error event", event);
                checkProblem(event);
                failed = true;
            } else {
                tokens.addAll(ids(TestClient.json(event)));
            }
        }
        check(prompt, tokens, done && !failed);
        if (!done && !broken) {
            violations.add("a stream that ended regularly has no [DONE]: " + text);
        }
        return failed ? "error event" : done ? "200" : "broken stream";
    }

    private void check(String prompt, List<Integer> tokens, boolean whole) {
        var right = expected.getOrDefault(prompt, List.of());
        var wanted = whole ? right : right.subList(0, Math.min(tokens.size(), right.size()));
        if (!tokens.equals(wanted)) {
            violations.add("wrong tokens: " + tokens + " in place of " + wanted);
        }
    }

    private String problem(int status, String body) {
        messages.put(Integer.toString(status), body);
        checkProblem(body);
        return Integer.toString(status);
    }

    private void checkProblem(String body) {
        if (body.contains("wrong KV")) {
            violations.add(body);
        }
    }

    Map<String, Long> endsByKind() {
        var sums = new TreeMap<String, Long>();
        ends.forEach((kind, count) -> sums.put(kind, count.sum()));
        return sums;
    }
}
