// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Stream;

/// Every field of the requests of vLLM 0.33.0, as its source defines them, is either served or
/// refused by its name, never ignored; and a client that sends vLLM's default is not refused.
class RequestFieldsTest {
    /// Of both endpoints, with a value that asks for something.
    private static final List<String> SERVED =
            List.of(
                    "\"model\": \"m\"",
                    "\"frequency_penalty\": 0.5",
                    "\"logit_bias\": {\"1\": 2}",
                    "\"max_tokens\": 2",
                    "\"n\": 2",
                    "\"presence_penalty\": 0.5",
                    "\"seed\": 1",
                    "\"stop\": \"x\"",
                    "\"stream\": true",
                    "\"stream_options\": {\"include_usage\": true, \"continuous_usage_stats\": true}",
                    "\"temperature\": 0.5",
                    "\"top_p\": 0.5",
                    "\"top_k\": 3",
                    "\"min_p\": 0.1",
                    "\"repetition_penalty\": 1.1",
                    "\"stop_token_ids\": [1]",
                    "\"include_stop_str_in_output\": true",
                    "\"ignore_eos\": true",
                    "\"min_tokens\": 1",
                    "\"truncate_prompt_tokens\": 1",
                    "\"truncation_side\": \"right\"",
                    "\"return_token_ids\": true",
                    "\"priority\": 1",
                    "\"cache_salt\": \"s\"",
                    "\"kv_transfer_params\": {\"a\": 1}",
                    "\"ec_transfer_params\": {\"a\": 1}");

    /// They change no answer.
    private static final List<String> ACCEPTED =
            List.of(
                    "\"user\": \"u\"",
                    "\"request_id\": \"r\"",
                    "\"session_id\": \"s\"",
                    "\"metadata\": {\"a\": \"b\"}");

    private static final List<String> REFUSED =
            List.of(
                    "\"best_of\": 2",
                    "\"use_beam_search\": true",
                    "\"length_penalty\": 2.0",
                    "\"skip_special_tokens\": false",
                    "\"spaces_between_special_tokens\": false",
                    "\"allowed_token_ids\": [1]",
                    "\"bad_words\": [\"x\"]",
                    "\"prompt_logprobs\": 1",
                    "\"logprob_token_ids\": [1]",
                    "\"watermarking\": true",
                    "\"thinking_token_budget\": 5",
                    "\"repetition_detection\": {\"max_pattern_size\": 2}",
                    "\"stream_interval\": 5",
                    "\"return_token_offsets\": true",
                    "\"return_weight_versions\": true",
                    "\"routed_experts_prompt_start\": 2",
                    "\"mm_payload\": \"none\"",
                    "\"return_mm_kwargs\": false",
                    "\"response_format\": {\"type\": \"json_object\"}",
                    "\"structured_outputs\": {\"choice\": [\"a\"]}",
                    "\"guided_json\": {}",
                    "\"logits_processors\": [\"x\"]",
                    "\"return_tokens_as_token_ids\": true",
                    "\"vllm_xargs\": {\"a\": 1}",
                    "\"mm_processor_kwargs\": {\"a\": 1}",
                    "\"nobody_knows_it\": 1");

    private static final List<String> REFUSED_OF_CHATS =
            List.of(
                    "\"echo\": true",
                    "\"return_prompt_text\": true",
                    "\"tools\": [{\"type\": \"function\"}]",
                    "\"tool_choice\": \"required\"",
                    "\"reasoning_effort\": \"low\"",
                    "\"include_reasoning\": false",
                    "\"chat_template\": \"x\"",
                    "\"media_io_kwargs\": {\"a\": {}}",
                    "\"modalities\": [\"audio\"]",
                    "\"functions\": [{\"name\": \"f\"}]");

    private static final List<String> REFUSED_OF_COMPLETIONS =
            List.of(
                    "\"suffix\": \"x\"",
                    "\"prompt_embeds\": \"x\"",
                    "\"top_logprobs\": 2",
                    "\"documents\": [{\"text\": \"a\"}]",
                    "\"chat_template_kwargs\": {\"a\": 1}");

    private static final List<String> SERVED_OF_CHATS =
            List.of(
                    "\"messages\": []",
                    "\"logprobs\": true",
                    "\"top_logprobs\": 2",
                    "\"add_generation_prompt\": false",
                    "\"continue_final_message\": true",
                    "\"add_special_tokens\": true",
                    "\"documents\": [{\"text\": \"a\"}]",
                    "\"chat_template_kwargs\": {\"enable_thinking\": false}",
                    "\"max_completion_tokens\": 2",
                    "\"parallel_tool_calls\": false");

    private static final List<String> SERVED_OF_COMPLETIONS =
            List.of(
                    "\"prompt\": \"a\"",
                    "\"logprobs\": 2",
                    "\"echo\": true",
                    "\"add_special_tokens\": false");

    private static final String VLLM = "/vllm-0.33.0-request-fields.txt";

    /// Name to default, as JSON; "?" where there is none.
    private static Map<String, String> fieldsOfVllm(boolean chat) throws IOException {
        var fields = new LinkedHashMap<String, String>();
        try (var in = RequestFieldsTest.class.getResourceAsStream(VLLM)) {
            var text =
                    new String(Objects.requireNonNull(in).readAllBytes(), StandardCharsets.UTF_8);
            for (var line : text.lines().filter(each -> !each.startsWith("#")).toList()) {
                var parts = List.of(line.split(" "));
                var value = parts.get(chat ? 2 : 1);
                if (!value.equals("-")) {
                    fields.put(parts.getFirst(), value);
                }
            }
        }
        assertThat(fields).hasSizeGreaterThan(50);
        return fields;
    }

    private static String name(String field) {
        return field.split("\"", -1)[1];
    }

    private static void check(boolean chat, String field) {
        var body = Json.parseObject(("{" + field + "}").getBytes(StandardCharsets.UTF_8));
        RequestFields.refuseUnserved(chat, body);
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void areServedOrAccepted(boolean chat) {
        var own = chat ? SERVED_OF_CHATS : SERVED_OF_COMPLETIONS;
        Stream.of(SERVED, ACCEPTED, own)
                .flatMap(List::stream)
                .forEach(field ->
                        assertThatCode(() -> check(chat, field))
                                .as(field)
                                .doesNotThrowAnyException());
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void areRefusedByName(boolean chat) {
        Stream.of(REFUSED, chat ? REFUSED_OF_CHATS : REFUSED_OF_COMPLETIONS)
                .flatMap(List::stream)
                .forEach(field ->
                        assertThatThrownBy(() -> check(chat, field))
                                .as(field)
                                .isInstanceOf(HttpProblem.class)
                                .hasMessageContaining(name(field)));
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void allOfVllmAreAmongThem(boolean chat) throws IOException {
        var tested =
                Stream.of(
                                SERVED,
                                ACCEPTED,
                                chat ? SERVED_OF_CHATS : SERVED_OF_COMPLETIONS,
                                REFUSED,
                                chat ? REFUSED_OF_CHATS : REFUSED_OF_COMPLETIONS)
                        .flatMap(List::stream)
                        .map(RequestFieldsTest::name)
                        .toList();
        assertThat(tested).containsAll(fieldsOfVllm(chat).keySet());
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void vllmsDefaultsAreTaken(boolean chat) throws IOException {
        fieldsOfVllm(chat)
                .forEach((field, value) -> {
                    if (value.equals("?") || field.equals("prompt")) {
                        return;
                    }
                    var json = "\"" + field + "\": " + value;
                    assertThatCode(() -> check(chat, json)).as(json).doesNotThrowAnyException();
                    var prompt =
                            chat ? "\"messages\": [{\"role\": \"user\"}]" : "\"prompt\": \"a\"";
                    var whole = ("{" + prompt + ", " + json + "}").getBytes(StandardCharsets.UTF_8);
                    assertThatCode(() -> RequestCheck.check(chat, Json.parseObject(whole)))
                            .as(json)
                            .doesNotThrowAnyException();
                });
    }
}
