// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.serving.cli.MakeModelCommand;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/// `echo` with `logprobs`: log-probabilities of the prompt, which evaluation harnesses read. The
/// measure is what the same model says of the same tokens when it generates them.
class PromptScoresTest {
    private static final String PROMPT =
            "It was the best of times, it was the worst of times, it was the age of wisdom";
    private static final int GENERATED = 40;

    @TempDir static Path folder;

    @BeforeAll
    static void makeModel() {
        MakeModelCommand.makeDefault(folder.resolve("model"));
    }

    private static TestSettings settings() {
        return TestSettings.llama(folder.resolve("model"));
    }

    private static JsonNode ask(ServedEngine served, ObjectNode body) throws Exception {
        var response = TestClient.post(served.port(), "/v1/completions", Json.text(body));
        assertThat(response.statusCode()).as(response.body()).isEqualTo(200);
        return TestClient.json(response.body());
    }

    private static ObjectNode generation() {
        return Json.object()
                .put("prompt", PROMPT)
                .put("max_tokens", GENERATED)
                .put("temperature", 0)
                .put("ignore_eos", true)
                .put("logprobs", 2)
                .put("return_token_ids", true);
    }

    private static ObjectNode scoring(ArrayNode tokens) {
        return Json.object()
                .put("echo", true)
                .put("logprobs", 2)
                .put("max_tokens", 0)
                .put("return_token_ids", true)
                .set("prompt", tokens);
    }

    private static ArrayNode joined(JsonNode first, JsonNode second) {
        var all = Json.object().arrayNode();
        first.forEach(all::add);
        second.forEach(all::add);
        return all;
    }

    private static List<JsonNode> tail(JsonNode array) {
        var list = new ArrayList<JsonNode>();
        array.forEach(list::add);
        return list.subList(list.size() - GENERATED, list.size());
    }

    /// Generated tokens, sent as a prompt, have the log-probabilities that they had when they were
    /// generated.
    private static void scoresWhatWasGenerated(TestSettings settings) throws Exception {
        try (var served = new ServedEngine(settings.get())) {
            var generated = ask(served, generation()).at("/choices/0");
            var all = joined(generated.path("prompt_token_ids"), generated.path("token_ids"));
            // The prompt is in the prefix cache by now, and its KV has no logits.
            var answer = ask(served, scoring(all));
            var choice = answer.at("/choices/0");
            var scores = choice.path("logprobs");
            assertThat(scores.path("token_logprobs")).hasSize(all.size());
            assertThat(scores.at("/token_logprobs/0").isNull()).isTrue();
            assertThat(scores.at("/top_logprobs/0").isNull()).isTrue();
            for (var field : List.of("token_logprobs", "top_logprobs", "tokens")) {
                assertThat(tail(scores.path(field)))
                        .as(field)
                        .isEqualTo(tail(generated.path("logprobs").path(field)));
            }
            for (int i = 1; i < all.size(); i++) {
                assertThat(scores.path("token_logprobs").get(i).asDouble()).isLessThan(0);
            }
            assertThat(choice.path("finish_reason").asString()).isEqualTo("length");
            assertThat(choice.path("token_ids")).isEmpty();
            assertThat(choice.path("text").asString()).startsWith(PROMPT);
            assertThat(answer.at("/usage/completion_tokens").asInt()).isZero();
            assertThat(answer.at("/usage/prompt_tokens").asInt()).isEqualTo(all.size());
            assertThat(answer.at("/usage/prompt_tokens_details/cached_tokens").asInt()).isZero();
            assertThat(answer.at("/usage/prompt_tokens_details/computed_tokens").asInt())
                    .isEqualTo(all.size());
        }
    }

    @Test
    void equalsWhatTheModelSaidWhileItGenerated() throws Exception {
        scoresWhatWasGenerated(settings());
    }

    @Test
    void isTheSameForAPromptThatIsComputedInChunks() throws Exception {
        scoresWhatWasGenerated(settings().stepTokens(7));
    }

    @Test
    void comesFromAWorkerInAnotherProcess() throws Exception {
        scoresWhatWasGenerated(settings().ranks(1, true));
    }

    /// As lm-eval asks: prompts as token ids, one token, and the scores before it.
    @Test
    void scoresSeveralPromptsAndGoesOn() throws Exception {
        try (var served = new ServedEngine(settings().get())) {
            var body = generation().put("max_tokens", 1).put("echo", true).put("logprobs", 1);
            body.putArray("prompt").add("Call me Ishmael").add("x");
            var choices = ask(served, body).path("choices");
            assertThat(choices).hasSize(2);
            for (var choice : choices) {
                int prompt = choice.path("prompt_token_ids").size();
                assertThat(choice.at("/logprobs/token_logprobs")).hasSize(prompt + 1);
                assertThat(choice.at("/logprobs/tokens")).hasSize(prompt + 1);
                assertThat(choice.at("/logprobs/text_offset")).hasSize(prompt + 1);
                assertThat(choice.path("token_ids")).hasSize(1);
                // The last offset is where the generated token's text begins.
                var text = choice.path("text").asString();
                int offset = choice.at("/logprobs/text_offset/" + prompt).asInt();
                assertThat(text.substring(offset))
                        .isEqualTo(choice.at("/logprobs/tokens/" + prompt).asString());
            }
        }
    }

    @Test
    void streamsThePromptsScoresBeforeTheFirstToken() throws Exception {
        try (var served = new ServedEngine(settings().get())) {
            var body = generation().put("echo", true).put("max_tokens", 3);
            var whole = ask(served, body).at("/choices/0");
            var stream = body.put("stream", true);
            var response = TestClient.post(served.port(), "/v1/completions", Json.text(stream));
            var events = TestClient.events(response.body());
            var text = new StringBuilder();
            var scores = Json.object().arrayNode();
            var offsets = Json.object().arrayNode();
            for (var event : events.subList(0, events.size() - 1)) {
                var choice = TestClient.json(event).at("/choices/0");
                text.append(choice.path("text").asString());
                choice.at("/logprobs/token_logprobs").forEach(scores::add);
                choice.at("/logprobs/text_offset").forEach(offsets::add);
            }
            assertThat(text.toString()).isEqualTo(whole.path("text").asString());
            assertThat(scores).isEqualTo(whole.at("/logprobs/token_logprobs"));
            assertThat(offsets).isEqualTo(whole.at("/logprobs/text_offset"));
            var first = TestClient.json(events.getFirst()).at("/choices/0");
            assertThat(first.path("prompt_token_ids")).isEqualTo(whole.path("prompt_token_ids"));
            var only = stream.put("max_tokens", 0);
            response = TestClient.post(served.port(), "/v1/completions", Json.text(only));
            events = TestClient.events(response.body());
            assertThat(TestClient.json(events.getFirst()).at("/choices/0/text").asString())
                    .isEqualTo(PROMPT);
            var last = TestClient.json(events.get(events.size() - 2)).at("/choices/0");
            assertThat(last.path("text").asString()).isEmpty();
            assertThat(last.path("finish_reason").asString()).isEqualTo("length");
        }
    }

    @Test
    void isRefusedByARunnerWithoutLogits() throws Exception {
        try (var served = new ServedEngine(TestSettings.synthetic().get())) {
            var body = "{\"prompt\": \"a\", \"echo\": true, \"logprobs\": 1, \"max_tokens\": 0}";
            var response = TestClient.post(served.port(), "/v1/completions", body);
            assertThat(response.statusCode()).isEqualTo(400);
            assertThat(response.body()).contains("gives no logits of prompts");
            // The prompt alone needs none.
            var echo = "{\"prompt\": \"abc\", \"echo\": true, \"max_tokens\": 0}";
            response = TestClient.post(served.port(), "/v1/completions", echo);
            assertThat(TestClient.json(response.body()).at("/choices/0/text").asString())
                    .isEqualTo("abc");
        }
    }

    @Test
    void generatesNothingOnlyWhereThePromptIsTheAnswer() throws Exception {
        try (var served = new ServedEngine(TestSettings.synthetic().get())) {
            for (var body :
                    List.of(
                            "{\"prompt\": \"a\", \"max_tokens\": 0}",
                            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_completion_tokens\": 0}")) {
                var path = body.contains("messages") ? "/v1/chat/completions" : "/v1/completions";
                var response = TestClient.post(served.port(), path, body);
                assertThat(response.statusCode()).as(body).isEqualTo(400);
                assertThat(TestClient.json(response.body()).at("/error/param").asString())
                        .startsWith("max_");
            }
        }
    }
}
