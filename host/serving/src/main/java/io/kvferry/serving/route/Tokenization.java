// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.HttpCall;
import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.Json;
import io.kvferry.toolkit.net.HttpExchanges;
import io.kvferry.toolkit.net.LastingHttpClient;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

/// The token ids of prompts, from the `/tokenize` of an instance (vLLM's or kvferry's). Without
/// token ids a request is routed by other means. After a failure an instance is not asked for a
/// while, so that an unresponsive one delays only one request. A time-out on a long prompt does not
/// count as a failure of the instance.
///
/// Threading: any thread.
final class Tokenization {
    private static final Logger LOG = LoggerFactory.getLogger(Tokenization.class);
    private static final Duration PAUSE = Duration.ofSeconds(5);
    private static final int[] UNKNOWN = {};

    /// Tokenizers do some megabytes per second; a busy host less.
    private static final long BYTES_PER_SECOND = 512 << 10;

    /// A prompt that is longer may be late without anything being wrong.
    private static final int LONG_PROMPT_BYTES = 64 << 10;

    /// Fields of a request that decide how its prompt becomes tokens.
    private static final List<String> FIELDS =
            List.of(
                    "model",
                    "prompt",
                    "messages",
                    "add_special_tokens",
                    "add_generation_prompt",
                    "continue_final_message",
                    "chat_template",
                    "chat_template_kwargs",
                    "documents",
                    "tools");

    private final LastingHttpClient client;
    private final RouterSettings settings;
    private final Supplier<List<Upstream>> instances;
    private final AtomicInteger turn = new AtomicInteger();

    /// @param instances those that there are now
    Tokenization(
            LastingHttpClient client, RouterSettings settings, Supplier<List<Upstream>> instances) {
        this.client = client;
        this.settings = settings;
        this.instances = instances;
    }

    /// @return empty when they are not known
    int[] tokens(HttpCall call, ObjectNode body) throws InterruptedException {
        var prompt = body.path("prompt");
        boolean chat = body.path("messages").isArray();
        if (settings.policy() != RoutingPolicy.KV_EVENTS
                || body.hasNonNull("truncate_prompt_tokens")) {
            return UNKNOWN;
        }
        if (!chat && prompt.isArray() && prompt.path(0).isNumber()) {
            return ids(prompt);
        }
        if (!chat && !prompt.isString()) {
            return UNKNOWN;
        }
        var working = instances.get().stream().filter(Upstream::tokenizes).toList();
        if (working.isEmpty()) {
            return UNKNOWN;
        }
        return ask(working.get(Math.floorMod(turn.getAndIncrement(), working.size())), call, body);
    }

    private int[] ask(Upstream upstream, HttpCall call, ObjectNode body)
            throws InterruptedException {
        var asked = Json.object();
        for (var field : FIELDS) {
            if (body.hasNonNull(field)) {
                asked.set(field, body.get(field));
            }
        }
        var bytes = Json.text(asked).getBytes(StandardCharsets.UTF_8);
        var limit =
                settings.connectTimeout()
                        .plus(Duration.ofMillis(1000L * bytes.length / BYTES_PER_SECOND));
        var request =
                HttpRequest.newBuilder(upstream.at("/tokenize"))
                        .timeout(limit)
                        .header("Content-Type", "application/json")
                        .header("X-Request-Id", call.requestId())
                        .POST(HttpRequest.BodyPublishers.ofByteArray(bytes));
        call.header("Authorization").ifPresent(value -> request.header("Authorization", value));
        try {
            var response =
                    HttpExchanges.send(
                            client.now(),
                            request.build(),
                            BodyHandlers.limiting(
                                    BodyHandlers.ofByteArray(), settings.maxResponseBytes()),
                            limit);
            if (response.statusCode() == 200) {
                return ids(Json.parseObject(response.body()).path("tokens"));
            }
            if (response.statusCode() < 500) {
                return UNKNOWN; // what is wrong with the request, the next instance says
            }
            pause(upstream, "answered " + response.statusCode());
        } catch (HttpConnectTimeoutException e) {
            pause(upstream, e.toString());
        } catch (HttpTimeoutException e) {
            if (bytes.length <= LONG_PROMPT_BYTES) {
                pause(upstream, e.toString());
            } else {
                LOG.info("{}: no tokens of {} bytes within {}", upstream, bytes.length, limit);
            }
        } catch (IOException | HttpProblem e) {
            pause(upstream, e.toString());
        }
        return UNKNOWN;
    }

    private static void pause(Upstream upstream, String why) {
        upstream.pauseTokens(PAUSE);
        LOG.warn("{} is not asked for tokens of prompts for {}: {}", upstream, PAUSE, why);
    }

    private static int[] ids(JsonNode array) {
        var ids = new int[array.size()];
        for (int i = 0; i < ids.length; i++) {
            ids[i] = array.get(i).asInt(-1);
        }
        return ids;
    }
}
