// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;

/// Every field of vLLM's requests is either served or refused by its name, never ignored.
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
                    "\"return_token_ids\": true",
                    "\"priority\": 1",
                    "\"cache_salt\": \"s\"",
                    "\"kv_transfer_params\": {\"a\": 1}",
                    "\"ec_transfer_params\": {\"a\": 1}");

    /// They change no answer.
    private static final List<String> ACCEPTED =
            List.of("\"user\": \"u\"", "\"request_id\": \"r\"", "\"metadata\": {\"a\": \"b\"}");

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
                    "\"add_special_tokens\": false",
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
                    "\"tools\": [{\"type\": \"function\"}]",
                    "\"tool_choice\": \"required\"",
                    "\"reasoning_effort\": \"low\"",
                    "\"thinking_token_budget\": 5",
                    "\"include_reasoning\": false",
                    "\"add_generation_prompt\": false",
                    "\"continue_final_message\": true",
                    "\"documents\": [{\"text\": \"a\"}]",
                    "\"chat_template\": \"x\"",
                    "\"chat_template_kwargs\": {\"enable_thinking\": false}",
                    "\"media_io_kwargs\": {\"a\": {}}",
                    "\"modalities\": [\"audio\"]",
                    "\"functions\": [{\"name\": \"f\"}]");

    private static final List<String> REFUSED_OF_COMPLETIONS =
            List.of("\"suffix\": \"x\"", "\"prompt_embeds\": \"x\"", "\"top_logprobs\": 2");

    private static void check(boolean chat, String field) {
        var body = Json.parseObject(("{" + field + "}").getBytes(StandardCharsets.UTF_8));
        RequestFields.refuseUnserved(chat, body);
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void areServedOrAccepted(boolean chat) {
        var own =
                chat
                        ? Set.of(
                                "\"messages\": []",
                                "\"logprobs\": true",
                                "\"top_logprobs\": 2",
                                "\"max_completion_tokens\": 2")
                        : Set.of("\"prompt\": \"a\"", "\"logprobs\": 2", "\"echo\": true");
        Stream.of(SERVED, ACCEPTED, own)
                .flatMap(each -> each.stream())
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
                                .hasMessageContaining(field.split("\"", -1)[1]));
    }
}
