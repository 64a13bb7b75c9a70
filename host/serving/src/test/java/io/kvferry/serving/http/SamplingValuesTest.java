// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.UnaryOperator;
import java.util.stream.IntStream;

/// Values that a client gets over HTTP, compared with a reference that this test computes from the
/// model's logits: log-probabilities, penalties, bias, draws, stops.
class SamplingValuesTest {
    private static final String PROMPT = "the quick fox";
    private static final int LENGTH = 24;

    private final Engine engine =
            Engine.open(EngineConfig.of(new KnownModel.Provider(), Path.of(""), Map.of()));
    private final HttpService http = new HttpService("test", TestClient.loopback());

    @BeforeEach
    void serve() {
        var access = EngineAccess.of(engine, "known", SamplingDefaults.NONE);
        var trust = TransferTrust.of(Optional.empty(), List.of());
        OpenAiApi.install(access, http, Duration.ofSeconds(60), trust, http);
        engine.start();
        http.start();
    }

    @AfterEach
    void stop() {
        http.close();
        engine.close();
    }

    private JsonNode post(String path, ObjectNode body) throws Exception {
        var response = TestClient.post(http.port(), path, Json.text(body));
        assertThat(response.statusCode()).as(response.body()).isEqualTo(200);
        return TestClient.json(response.body());
    }

    private static ObjectNode body() {
        return Json.object()
                .put("prompt", PROMPT)
                .put("max_tokens", LENGTH)
                .put("temperature", 0)
                .put("return_token_ids", true);
    }

    private List<Integer> generated(ObjectNode body) throws Exception {
        return ints(post("/v1/completions", body).at("/choices/0/token_ids"));
    }

    private static List<Integer> ints(JsonNode array) {
        var list = new ArrayList<Integer>();
        array.forEach(each -> list.add(each.asInt()));
        return list;
    }

    private static List<Integer> tokens(String text) {
        return new ArrayList<>(text.chars().boxed().toList());
    }

    /// Log-probabilities of all tokens at a position of a sequence.
    private static double[] logprobs(List<Integer> sequence, int position) {
        var logits = KnownModel.logits(position - 1, sequence.get(position - 1));
        double sum = 0;
        for (float logit : logits) {
            sum += Math.exp(logit);
        }
        double norm = Math.log(sum);
        return IntStream.range(0, logits.length).mapToDouble(id -> logits[id] - norm).toArray();
    }

    private static List<Integer> likeliest(double[] values, int count) {
        return IntStream.range(0, values.length)
                .boxed()
                .sorted(Comparator.comparingDouble(id -> -values[id]))
                .limit(count)
                .toList();
    }

    /// The greedy continuation of the prompt where `change` has been applied to the logits.
    private static List<Integer> greedy(UnaryOperator<double[]> change, List<Integer> sequence) {
        while (sequence.size() < PROMPT.length() + LENGTH) {
            int last = sequence.size() - 1;
            var logits = KnownModel.logits(last, sequence.get(last));
            var values = IntStream.range(0, logits.length).mapToDouble(id -> logits[id]).toArray();
            sequence.add(likeliest(change.apply(values), 1).getFirst());
        }
        return sequence.subList(PROMPT.length(), sequence.size());
    }

    private static List<Integer> greedy() {
        return greedy(values -> values, tokens(PROMPT));
    }

    private static void assertLogprobs(
            JsonNode logprobs, List<Integer> sequence, int from, int wanted) {
        for (int i = from; i < sequence.size(); i++) {
            var expected = logprobs(sequence, i);
            int k = i - from;
            assertThat(logprobs.path("tokens").get(k).asString())
                    .isEqualTo(Character.toString(sequence.get(i)));
            assertThat(logprobs.path("text_offset").get(k).asInt()).isEqualTo(k);
            assertThat(logprobs.path("token_logprobs").get(k).asDouble())
                    .isCloseTo(expected[sequence.get(i)], within(1e-4));
            var top = logprobs.path("top_logprobs").get(k);
            var names = new ArrayList<>(likeliest(expected, wanted));
            if (!names.contains(sequence.get(i))) {
                names.add(sequence.get(i)); // as in OpenAI's API, beside the likeliest
            }
            assertThat(top).hasSize(names.size());
            for (int id : names) {
                assertThat(top.path(Character.toString(id)).asDouble())
                        .as("position %s, %s", i, Character.toString(id))
                        .isCloseTo(expected[id], within(1e-4));
            }
        }
    }

    @Test
    void logprobsAreThoseOfTheModel() throws Exception {
        var choice = post("/v1/completions", body().put("logprobs", 4)).at("/choices/0");
        var sequence = tokens(PROMPT);
        sequence.addAll(ints(choice.path("token_ids")));
        assertThat(sequence.subList(PROMPT.length(), sequence.size())).isEqualTo(greedy());
        assertLogprobs(choice.path("logprobs"), sequence, PROMPT.length(), 4);
    }

    /// A token that was drawn against the odds is listed beside the likeliest ones.
    @Test
    void logprobsOfDrawnTokensAreThoseOfTheModel() throws Exception {
        var body = body().put("temperature", 2).put("seed", 5).put("logprobs", 2);
        var choice = post("/v1/completions", body).at("/choices/0");
        var sequence = tokens(PROMPT);
        sequence.addAll(ints(choice.path("token_ids")));
        assertLogprobs(choice.path("logprobs"), sequence, PROMPT.length(), 2);
    }

    @Test
    void logprobsOfAnEchoedPromptAreThoseOfTheModel() throws Exception {
        var body = body().put("echo", true).put("logprobs", 2).put("max_tokens", 0);
        var logprobs = post("/v1/completions", body).at("/choices/0/logprobs");
        var sequence = tokens(PROMPT);
        for (int i = 1; i < sequence.size(); i++) {
            assertThat(logprobs.path("token_logprobs").get(i).asDouble())
                    .isCloseTo(logprobs(sequence, i)[sequence.get(i)], within(1e-4));
        }
    }

    @Test
    void logprobsOfAChatAreThoseOfTheModel() throws Exception {
        var body =
                Json.object()
                        .put("max_tokens", 6)
                        .put("temperature", 0)
                        .put("logprobs", true)
                        .put("top_logprobs", 3)
                        .put("return_token_ids", true);
        body.putArray("messages").addObject().put("role", "user").put("content", "hi");
        var json = post("/v1/chat/completions", body);
        var sequence = new ArrayList<>(ints(json.path("prompt_token_ids")));
        int prompt = sequence.size();
        sequence.addAll(ints(json.at("/choices/0/token_ids")));
        var content = json.at("/choices/0/logprobs/content");
        assertThat(content).hasSize(6);
        for (int i = 0; i < 6; i++) {
            var expected = logprobs(sequence, prompt + i);
            var entry = content.get(i);
            int token = sequence.get(prompt + i);
            assertThat(entry.path("token").asString()).isEqualTo(Character.toString(token));
            assertThat(entry.path("bytes")).hasSize(1);
            assertThat(entry.at("/bytes/0").asInt()).isEqualTo(token);
            assertThat(entry.path("logprob").asDouble()).isCloseTo(expected[token], within(1e-4));
            var top = likeliest(expected, 3);
            for (int k = 0; k < 3; k++) {
                assertThat(entry.path("top_logprobs").get(k).path("token").asString())
                        .isEqualTo(Character.toString(top.get(k)));
                assertThat(entry.path("top_logprobs").get(k).path("logprob").asDouble())
                        .isCloseTo(expected[top.get(k)], within(1e-4));
            }
        }
    }

    @Test
    void biasIsAddedToTheLogits() throws Exception {
        var body = body();
        body.putObject("logit_bias").put("101", 4.5).put("102", -100);
        var expected =
                greedy(
                        values -> {
                            values['e'] += 4.5;
                            values['f'] -= 100;
                            return values;
                        },
                        tokens(PROMPT));
        assertThat(generated(body)).isEqualTo(expected).isNotEqualTo(greedy());
    }

    /// Presence and frequency count what was generated, repetition the prompt too.
    private static List<Integer> penalised(double presence, double frequency, double repetition) {
        var sequence = tokens(PROMPT);
        return greedy(
                values -> {
                    for (int id : sequence.stream().distinct().toList()) {
                        values[id] =
                                values[id] > 0 ? values[id] / repetition : values[id] * repetition;
                    }
                    var times = new HashMap<Integer, Integer>();
                    sequence.stream()
                            .skip(PROMPT.length())
                            .forEach(id -> times.merge(id, 1, Integer::sum));
                    times.forEach((id, count) -> values[id] -= presence + count * frequency);
                    return values;
                },
                sequence);
    }

    @Test
    void penaltiesAreThoseOfVllm() throws Exception {
        assertThat(generated(body().put("presence_penalty", 1.5)))
                .isEqualTo(penalised(1.5, 0, 1))
                .isNotEqualTo(greedy());
        assertThat(generated(body().put("frequency_penalty", 1.25)))
                .isEqualTo(penalised(0, 1.25, 1))
                .isNotEqualTo(greedy());
        assertThat(generated(body().put("repetition_penalty", 1.75)))
                .isEqualTo(penalised(0, 0, 1.75))
                .isNotEqualTo(greedy());
        assertThat(
                        generated(
                                body().put("presence_penalty", -0.5)
                                        .put("frequency_penalty", 0.75)
                                        .put("repetition_penalty", 1.25)))
                .isEqualTo(penalised(-0.5, 0.75, 1.25));
    }

    @Test
    void oneCandidateIsTheLikeliestWhateverTheTemperature() throws Exception {
        for (var only : List.of("top_k", "min_p")) {
            var body = body().put("temperature", 2).put("seed", 3).put(only, 1);
            assertThat(generated(body)).as(only).isEqualTo(greedy());
        }
        assertThat(generated(body().put("temperature", 2).put("seed", 3).put("top_p", 1e-6)))
                .isEqualTo(greedy());
        assertThat(generated(body().put("temperature", 2).put("seed", 3))).isNotEqualTo(greedy());
    }

    /// Choices of one prompt have consecutive seeds, so these draws are the same in every run.
    @Test
    void drawsFollowTheProbabilities() throws Exception {
        var sequence = tokens(PROMPT);
        var logits = KnownModel.logits(PROMPT.length() - 1, sequence.getLast());
        var body = body().put("max_tokens", 1).put("n", 128).put("seed", 1).put("temperature", 1.5);
        var seen = new HashMap<Integer, Integer>();
        int draws = 0;
        for (int seed = 1; seed < 8 * 128; seed += 128) {
            for (var choice : post("/v1/completions", body.put("seed", seed)).path("choices")) {
                seen.merge(choice.at("/token_ids/0").asInt(), 1, Integer::sum);
                draws++;
            }
        }
        double sum = 0;
        for (float logit : logits) {
            sum += Math.exp(logit / 1.5);
        }
        assertThat(draws).isEqualTo(8 * 128);
        for (int id = 'a'; id <= 'z'; id++) {
            double expected = Math.exp(logits[id] / 1.5) / sum;
            assertThat((double) seen.getOrDefault(id, 0) / draws)
                    .as(Character.toString(id))
                    .isCloseTo(expected, within(0.05));
        }
    }

    @Test
    void choicesOfOnePromptAreThoseOfConsecutiveSeeds() throws Exception {
        var body = body().put("temperature", 1.5).put("seed", 40);
        var several = post("/v1/completions", body.deepCopy().put("n", 3)).path("choices");
        assertThat(several).hasSize(3);
        for (int i = 0; i < 3; i++) {
            assertThat(ints(several.get(i).path("token_ids")))
                    .isEqualTo(generated(body.put("seed", 40 + i)));
        }
        assertThat(several.at("/0/token_ids")).isNotEqualTo(several.at("/1/token_ids"));
    }

    private static String text(List<Integer> tokens) {
        var text = new StringBuilder();
        tokens.forEach(text::appendCodePoint);
        return text.toString();
    }

    @Test
    void stopStringsEndTheTextWhereTheyBegin() throws Exception {
        var whole = text(greedy());
        var stop = whole.substring(5, 8);
        int at = whole.indexOf(stop);
        for (boolean include : new boolean[] {false, true}) {
            var body = body().put("stop", stop).put("include_stop_str_in_output", include);
            var choice = post("/v1/completions", body).at("/choices/0");
            var expected = whole.substring(0, include ? at + 3 : at);
            assertThat(choice.path("text").asString()).isEqualTo(expected);
            assertThat(choice.path("finish_reason").asString()).isEqualTo("stop");
            var response =
                    TestClient.post(
                            http.port(), "/v1/completions", Json.text(body.put("stream", true)));
            var streamed = new StringBuilder();
            for (var event : TestClient.events(response.body())) {
                if (!event.equals("[DONE]")) {
                    streamed.append(TestClient.json(event).at("/choices/0/text").asString());
                }
            }
            assertThat(streamed.toString()).isEqualTo(expected);
        }
        // Not before so many tokens: the string there is no stop string.
        var later = body().put("stop", stop).put("min_tokens", at + 4);
        int next = whole.indexOf(stop, at + 3);
        assertThat(post("/v1/completions", later).at("/choices/0/text").asString())
                .isEqualTo(next < 0 ? whole : whole.substring(0, next));
    }

    @Test
    void stopTokensEndTheText() throws Exception {
        var whole = greedy();
        int stop = whole.get(6);
        var body = body();
        body.putArray("stop_token_ids").add(stop);
        assertThat(generated(body)).isEqualTo(whole.subList(0, whole.indexOf(stop)));
    }

    @Test
    void aTruncatedPromptIsAnsweredAsItsRest() throws Exception {
        var rest = tokens(PROMPT.substring(PROMPT.length() - 4));
        var body = body().put("max_tokens", 1).put("truncate_prompt_tokens", 4).put("logprobs", 1);
        var choice = post("/v1/completions", body).at("/choices/0");
        assertThat(ints(choice.path("prompt_token_ids"))).isEqualTo(rest);
        rest.addAll(ints(choice.path("token_ids")));
        assertLogprobs(choice.path("logprobs"), rest, 4, 1);
    }

    @Test
    void textsAndTokenIdsOfOnePromptHaveTheSameAnswer() throws Exception {
        var ids = body();
        tokens(PROMPT).forEach(ids.putArray("prompt")::add);
        assertThat(generated(ids)).isEqualTo(greedy());
        var list = body();
        var both = list.putArray("prompt");
        tokens(PROMPT).forEach(both.addArray()::add);
        tokens("other").forEach(both.addArray()::add);
        var choices = post("/v1/completions", list).path("choices");
        assertThat(ints(choices.at("/0/token_ids"))).isEqualTo(greedy());
        assertThat(ints(choices.at("/1/prompt_token_ids"))).isEqualTo(tokens("other"));
    }
}
