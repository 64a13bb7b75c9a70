// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.serving.cli.MakeModelCommand;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.TransferParams;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import tools.jackson.databind.JsonNode;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;

/// The effect of each field of a completion request.
class CompletionFieldsTest {
    @TempDir Path folder;

    private ScriptedEngine engine = new ScriptedEngine(_ -> {});
    private @Nullable HttpService http;

    private int serve(Consumer<ScriptedEngine.Handle> script) {
        return serve(script, SamplingDefaults.NONE);
    }

    private int serve(Consumer<ScriptedEngine.Handle> script, SamplingDefaults defaults) {
        engine = new ScriptedEngine(script);
        engine.defaults = defaults;
        var service = new HttpService("test", TestClient.loopback());
        http = service;
        var trust = TransferTrust.of(Optional.empty(), List.of());
        OpenAiApi.install(engine.access(), service, Duration.ofSeconds(20), trust, service);
        service.start();
        return service.port();
    }

    /// Answers each prompt with itself and its seed's parity.
    private static void echoing(ScriptedEngine.Handle handle) {
        handle.say(new ByteTokenizer().decode(handle.request.prompt()))
                .finish(FinishReason.LENGTH, TransferParams.EMPTY);
    }

    @AfterEach
    void stop() {
        if (http != null) {
            http.close();
        }
    }

    private static JsonNode complete(int port, String body) throws Exception {
        var response = TestClient.post(port, "/v1/completions", body);
        assertThat(response.statusCode()).as(response.body()).isEqualTo(200);
        return TestClient.json(response.body());
    }

    @Test
    void answersSeveralChoicesOfSeveralPromptsInOrder() throws Exception {
        int port = serve(CompletionFieldsTest::echoing);
        var json =
                complete(
                        port,
                        "{\"prompt\": [\"ab\", \"c\"], \"n\": 2, \"seed\": 5, \"echo\": true}");
        var choices = json.path("choices");
        assertThat(choices).hasSize(4);
        var texts = List.of("abab", "abab", "cc", "cc");
        for (int i = 0; i < 4; i++) {
            assertThat(choices.get(i).path("index").asInt()).isEqualTo(i);
            assertThat(choices.get(i).path("text").asString()).isEqualTo(texts.get(i));
        }
        assertThat(json.at("/usage/prompt_tokens").asInt()).isEqualTo(3);
        assertThat(json.at("/usage/completion_tokens").asInt()).isEqualTo(6);
        assertThat(engine.submitted.stream().map(handle -> handle.request.sampling().seed()))
                .containsExactly(5L, 6L, 5L, 6L);
    }

    @Test
    void takesTokenIdsAndListsOfThem() throws Exception {
        int port = serve(CompletionFieldsTest::echoing);
        assertThat(complete(port, "{\"prompt\": [97, 98]}").at("/choices/0/text").asString())
                .isEqualTo("ab");
        var lists = complete(port, "{\"prompt\": [[97], [98, 99]]}");
        assertThat(lists.at("/choices/1/text").asString()).isEqualTo("bc");
    }

    @Test
    void streamsSeveralChoices() throws Exception {
        int port = serve(CompletionFieldsTest::echoing);
        var response =
                TestClient.post(
                        port,
                        "/v1/completions",
                        "{\"prompt\": [\"ab\", \"cde\"], \"n\": 2, \"stream\": true, \"echo\": true, \"stream_options\": {\"include_usage\": true, \"continuous_usage_stats\": true}}");
        Map<Integer, String> texts = new HashMap<>();
        var ended = new HashSet<Integer>();
        var events = TestClient.events(response.body());
        for (var event : events.subList(0, events.size() - 2)) {
            var choice = TestClient.json(event).at("/choices/0");
            int index = choice.path("index").asInt();
            texts.merge(index, choice.path("text").asString(), String::concat);
            if (choice.path("finish_reason").isString()) {
                ended.add(index);
            }
        }
        assertThat(texts).isEqualTo(Map.of(0, "abab", 1, "abab", 2, "cdecde", 3, "cdecde"));
        assertThat(ended).containsExactlyInAnyOrder(0, 1, 2, 3);
        var usage = TestClient.json(events.get(events.size() - 2)).path("usage");
        assertThat(usage.path("completion_tokens").asInt()).isEqualTo(10);
        assertThat(usage.path("prompt_tokens").asInt()).isEqualTo(5);
        assertThat(events.getLast()).isEqualTo("[DONE]");
    }

    @Test
    void abortsEveryChoiceWhenOneFails() throws Exception {
        int port =
                serve(handle -> {
                    if (handle.request.prompt()[0] == 'b') {
                        throw new KvFerryException(ErrorCode.BACKPRESSURE, "the engine is full");
                    }
                });
        var response = TestClient.post(port, "/v1/completions", "{\"prompt\": [\"a\", \"b\"]}");
        assertThat(response.statusCode()).isEqualTo(503);
        assertThat(engine.submitted.remove().aborted).isCompleted();
    }

    @Test
    void keepsTheStopStringWhereItIsWanted() throws Exception {
        int port =
                serve(handle ->
                        handle.say("one END").finish(FinishReason.STOP, TransferParams.EMPTY));
        var body =
                "{\"prompt\": \"x\", \"stop\": [\" END\"], \"include_stop_str_in_output\": true}";
        assertThat(complete(port, body).at("/choices/0/text").asString()).isEqualTo("one END");
    }

    @Test
    void handsTheSamplingOptionsToTheEngine() throws Exception {
        int port = serve(CompletionFieldsTest::echoing);
        complete(
                port,
                """
                {"prompt": "x", "top_k": 7, "min_p": 0.25, "presence_penalty": 0.5, "frequency_penalty": -0.5,
                 "repetition_penalty": 1.5, "logit_bias": {"97": -100, "98": 5}, "min_tokens": 2,
                 "top_p": 0.5, "temperature": 0.75, "max_tokens": 9, "stop_token_ids": [3], "ignore_eos": true,
                 "user": "me", "best_of": 1, "response_format": {"type": "text"}}\
                """);
        var sampling = engine.submitted.remove().request.sampling();
        var options = sampling.options();
        assertThat(options.topK()).isEqualTo(7);
        assertThat(options.minP()).isEqualTo(0.25);
        assertThat(options.presencePenalty()).isEqualTo(0.5);
        assertThat(options.frequencyPenalty()).isEqualTo(-0.5);
        assertThat(options.repetitionPenalty()).isEqualTo(1.5);
        assertThat(options.logitBias()).isEqualTo(Map.of(97, -100.0, 98, 5.0));
        assertThat(options.minTokens()).isEqualTo(2);
        assertThat(options.logprobs()).isEqualTo(-1);
        assertThat(sampling.topP()).isEqualTo(0.5);
        assertThat(sampling.temperature()).isEqualTo(0.75);
        assertThat(sampling.maxTokens()).isEqualTo(9);
        assertThat(sampling.stopTokens()).containsExactly(3);
        assertThat(sampling.ignoreEos()).isTrue();
        complete(port, "{\"prompt\": \"x\", \"top_k\": -1}");
        assertThat(engine.submitted.remove().request.sampling().options().topK()).isZero();
    }

    @Test
    void takesDefaultsFromTheModelsGenerationConfig() throws Exception {
        Files.writeString(
                folder.resolve("generation_config.json"),
                "{\"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 20, \"repetition_penalty\": 1.05, \"max_new_tokens\": 33, \"eos_token_id\": [1, 2]}");
        int port = serve(CompletionFieldsTest::echoing, SamplingDefaults.read(folder));
        complete(port, "{\"prompt\": \"x\"}");
        var sampling = engine.submitted.remove().request.sampling();
        assertThat(sampling.temperature()).isEqualTo(0.6);
        assertThat(sampling.topP()).isEqualTo(0.9);
        assertThat(sampling.options().topK()).isEqualTo(20);
        assertThat(sampling.options().repetitionPenalty()).isEqualTo(1.05);
        assertThat(sampling.maxTokens()).isEqualTo(33);
        assertThat(sampling.stopTokens()).containsExactly(1, 2);
        complete(port, "{\"prompt\": \"x\", \"ignore_eos\": true, \"stop_token_ids\": [7]}");
        assertThat(engine.submitted.remove().request.sampling().stopTokens()).containsExactly(7);
        assertThat(SamplingDefaults.read(folder.resolve("none"))).isEqualTo(SamplingDefaults.NONE);
        Files.writeString(folder.resolve("generation_config.json"), "{\"eos_token_id\": 3}");
        assertThat(SamplingDefaults.read(folder).endTokens()).containsExactly(3);
        Files.writeString(folder.resolve("generation_config.json"), "{\"top_p\": \"x\"}");
        assertThatThrownBy(() -> SamplingDefaults.read(folder))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("top_p");
    }

    @Test
    void truncatesPromptsOnTheSideThatIsAsked() throws Exception {
        int port = serve(CompletionFieldsTest::echoing);
        var last = "{\"prompt\": \"abcdef\", \"truncate_prompt_tokens\": 2}";
        assertThat(complete(port, last).at("/choices/0/text").asString()).isEqualTo("ef");
        var side = "{\"prompt\": \"abcdef\", \"truncate_prompt_tokens\": 2, \"truncation_side\": ";
        assertThat(complete(port, side + "\"left\"}").at("/choices/0/text").asString())
                .isEqualTo("ef");
        assertThat(complete(port, side + "\"right\"}").at("/choices/0/text").asString())
                .isEqualTo("ab");
        assertThat(TestClient.post(port, "/v1/completions", side + "\"top\"}").body())
                .contains("truncation_side must be");
        var fitting = "{\"prompt\": \"" + "z".repeat(600) + "\", \"truncate_prompt_tokens\": -1}";
        assertThat(complete(port, fitting).at("/usage/prompt_tokens").asInt()).isEqualTo(511);
    }

    @Test
    void servesTheSmallEndpoints() throws Exception {
        int port = serve(CompletionFieldsTest::echoing);
        assertThat(
                        TestClient.json(TestClient.get(port, "/v1/models/test-model").body())
                                .path("id")
                                .asString())
                .isEqualTo("test-model");
        assertThat(TestClient.get(port, "/v1/models/org/other").statusCode()).isEqualTo(404);
        assertThat(TestClient.get(port, "/version").body()).contains("version");
        var tokens =
                TestClient.json(TestClient.post(port, "/tokenize", "{\"prompt\": \"ab\"}").body());
        assertThat(tokens.path("count").asInt()).isEqualTo(2);
        assertThat(tokens.at("/tokens/1").asInt()).isEqualTo('b');
        var chat =
                TestClient.json(
                        TestClient.post(
                                        port,
                                        "/tokenize",
                                        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}")
                                .body());
        assertThat(chat.path("count").asInt()).isEqualTo("user: hi".length());
        assertThat(TestClient.post(port, "/detokenize", "{\"tokens\": [104, 105]}").body())
                .contains("\"hi\"");
        assertThat(TestClient.post(port, "/detokenize", "{\"tokens\": [256]}").statusCode())
                .isEqualTo(400);
        assertThat(TestClient.post(port, "/detokenize", "{\"tokens\": \"x\"}").statusCode())
                .isEqualTo(400);
    }

    @Test
    void ignoresNoFieldOfTokenize() throws Exception {
        int port = serve(CompletionFieldsTest::echoing);
        for (var field :
                new String[] {
                    "\"return_token_strs\": true",
                    "\"add_generation_prompt\": false",
                    "\"no_such_field\": 1"
                }) {
            var name = field.substring(1, field.indexOf('"', 1));
            assertRefused(port, "/tokenize", "{\"prompt\": \"ab\", " + field + "}", name);
        }
        var chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], ";
        for (var field : new String[] {"\"tools\": [{}]", "\"chat_template\": \"x\""}) {
            var name = field.substring(1, field.indexOf('"', 1));
            assertRefused(port, "/tokenize", chat + field + "}", name);
        }
        var asIs =
                "\"add_special_tokens\": false, \"add_generation_prompt\": true, \"tools\": [], \"model\": \"test-model\"}";
        assertThat(TestClient.post(port, "/tokenize", chat + asIs).statusCode()).isEqualTo(200);
        assertRefused(port, "/detokenize", "{\"tokens\": [104], \"other\": 1}", "other");
        for (var path : new String[] {"/tokenize", "/detokenize"}) {
            var other = "{\"prompt\": \"a\", \"tokens\": [104], \"model\": \"gpt\"}";
            assertThat(TestClient.post(port, path, other).statusCode()).isEqualTo(404);
        }
    }

    @Test
    void ignoresNoFieldOfMessagesAndStreamOptions() throws Exception {
        int port = serve(CompletionFieldsTest::echoing);
        var path = "/v1/chat/completions";
        for (var field : new String[] {"name", "tool_calls", "reasoning_content"}) {
            assertRefused(
                    port,
                    path,
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\", \""
                            + field
                            + "\": [\"x\"]}]}",
                    "messages[0]." + field);
        }
        var cached =
                "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"hi\", \"cache_control\": 1}]}]}";
        assertRefused(port, path, cached, "messages[0].content.cache_control");
        var obfuscated =
                "{\"prompt\": \"a\", \"stream\": true, \"stream_options\": {\"include_obfuscation\": true}}";
        assertRefused(port, "/v1/completions", obfuscated, "stream_options.include_obfuscation");
        var empty =
                "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}], \"refusal\": null, \"annotations\": [], \"name\": \"\"}]}";
        assertThat(TestClient.post(port, path, empty).statusCode()).isEqualTo(200);
        assertThat(new ByteTokenizer().decode(engine.submitted.remove().request.prompt()))
                .isEqualTo("assistant: a\nb");
    }

    private static void assertRefused(int port, String path, String body, String param)
            throws Exception {
        var response = TestClient.post(port, path, body);
        assertThat(response.statusCode()).as(body).isEqualTo(400);
        assertThat(TestClient.json(response.body()).at("/error/param").asString()).isEqualTo(param);
    }

    @Test
    void tellsLogprobsOfARealModel() throws Exception {
        MakeModelCommand.makeDefault(folder.resolve("model"));
        try (var served = new ServedEngine(TestSettings.llama(folder.resolve("model")).get())) {
            var body =
                    "{\"prompt\": \"It was\", \"max_tokens\": 4, \"temperature\": 0, \"logprobs\": 3, \"return_token_ids\": true}";
            var choice = complete(served.port(), body).at("/choices/0");
            var logprobs = choice.path("logprobs");
            assertThat(logprobs.path("tokens")).hasSize(4);
            for (int i = 0; i < 4; i++) {
                double chosen = logprobs.path("token_logprobs").get(i).asDouble();
                assertThat(chosen).isLessThan(0);
                // Greedy: nothing is likelier than what was chosen.
                logprobs.path("top_logprobs")
                        .get(i)
                        .forEach(top -> assertThat(top.asDouble()).isLessThanOrEqualTo(chosen));
            }
            var stream = body.replace("{", "{\"stream\": true, ");
            var offsets = new ArrayList<Integer>();
            TestClient.events(TestClient.post(served.port(), "/v1/completions", stream).body())
                    .stream()
                    .filter(event -> !event.equals("[DONE]"))
                    .forEach(event ->
                            TestClient.json(event)
                                    .at("/choices/0/logprobs/text_offset")
                                    .forEach(offset -> offsets.add(offset.asInt())));
            var whole = new ArrayList<Integer>();
            logprobs.path("text_offset").forEach(offset -> whole.add(offset.asInt()));
            assertThat(offsets).isEqualTo(whole);
            int first = choice.at("/token_ids/0").asInt();
            var chat =
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"It\"}], \"max_tokens\": 2, \"temperature\": 0, \"logprobs\": true, \"top_logprobs\": 2}";
            var answer = TestClient.post(served.port(), "/v1/chat/completions", chat);
            var content = TestClient.json(answer.body()).at("/choices/0/logprobs/content");
            assertThat(content).hasSize(2);
            assertThat(content.at("/0/top_logprobs")).hasSize(2);
            assertThat(content.at("/0/top_logprobs/0/logprob").asDouble())
                    .isCloseTo(content.at("/0/logprob").asDouble(), within(1e-6));
            var banned =
                    "{\"prompt\": \"It was\", \"max_tokens\": 1, \"temperature\": 0, \"logit_bias\": {\""
                            + first
                            + "\": -100}, \"return_token_ids\": true}";
            assertThat(complete(served.port(), banned).at("/choices/0/token_ids/0").asInt())
                    .isNotEqualTo(first);
        }
        try (var served = new ServedEngine(TestSettings.synthetic().get())) {
            var response =
                    TestClient.post(
                            served.port(),
                            "/v1/completions",
                            "{\"prompt\": \"a\", \"logprobs\": 1}");
            assertThat(response.statusCode()).isEqualTo(400);
            assertThat(response.body()).contains("chooses tokens itself");
        }
    }
}
