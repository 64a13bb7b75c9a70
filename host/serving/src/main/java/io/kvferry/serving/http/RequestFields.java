// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import org.jspecify.annotations.Nullable;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.util.Map;
import java.util.Set;

/// Which fields of a request are served. No field is ignored: an unsupported or unknown field is
/// refused by name. Fields without effect on the answer (`user`, `metadata`) are accepted.
///
/// Threading: any thread.
final class RequestFields {
    /// Fields of both endpoints that are served.
    private static final Set<String> SERVED =
            Set.of(
                    "model",
                    "stream",
                    "stream_options",
                    "max_tokens",
                    "max_completion_tokens",
                    "temperature",
                    "top_p",
                    "top_k",
                    "min_p",
                    "n",
                    "seed",
                    "stop",
                    "stop_token_ids",
                    "include_stop_str_in_output",
                    "ignore_eos",
                    "min_tokens",
                    "presence_penalty",
                    "frequency_penalty",
                    "repetition_penalty",
                    "logit_bias",
                    "logprobs",
                    "truncate_prompt_tokens",
                    "truncation_side",
                    "return_token_ids",
                    "cache_salt",
                    "priority",
                    "kv_transfer_params",
                    "ec_transfer_params");

    private static final Set<String> OF_COMPLETIONS =
            Set.of("prompt", "echo", "add_special_tokens");

    /// How a chat becomes a prompt.
    private static final Set<String> OF_TEMPLATES =
            Set.of(
                    "messages",
                    "add_generation_prompt",
                    "continue_final_message",
                    "add_special_tokens",
                    "chat_template_kwargs");

    private static final Set<String> OF_CHATS = Set.of("top_logprobs", "documents");
    private static final Set<String> OF_STREAMS = Set.of("include_usage", "continuous_usage_stats");

    /// Fields that change no answer.
    private static final Set<String> HARMLESS =
            Set.of(
                    "user",
                    "metadata",
                    "store",
                    "service_tier",
                    "safety_identifier",
                    "prompt_cache_key",
                    "request_id",
                    "session_id",
                    "parallel_tool_calls");

    /// Fields with the values that ask for nothing beyond what is done anyway.
    private static final Map<String, Set<String>> NEUTRAL =
            Map.ofEntries(
                    Map.entry("best_of", Set.of("1")),
                    Map.entry("length_penalty", Set.of("1", "1.0")),
                    Map.entry("use_beam_search", Set.of("false")),
                    Map.entry("watermarking", Set.of("false")),
                    Map.entry("suffix", Set.of("\"\"")),
                    Map.entry("skip_special_tokens", Set.of("true")),
                    Map.entry("spaces_between_special_tokens", Set.of("true")),
                    Map.entry("bad_words", Set.of("[]")),
                    Map.entry("tools", Set.of("[]")),
                    Map.entry("tool_choice", Set.of("\"none\"", "\"auto\"")),
                    Map.entry("functions", Set.of("[]")),
                    Map.entry("modalities", Set.of("[\"text\"]")),
                    Map.entry("response_format", Set.of("{\"type\":\"text\"}")),
                    Map.entry("include_reasoning", Set.of("true")),
                    Map.entry("thinking_token_budget", Set.of("-1")),
                    Map.entry("media_io_kwargs", Set.of("{}")),
                    Map.entry("mm_processor_kwargs", Set.of("{}")),
                    Map.entry("mm_payload", Set.of("\"tensors\"")),
                    Map.entry("return_mm_kwargs", Set.of("true")),
                    Map.entry("vllm_xargs", Set.of("{}")),
                    Map.entry("return_tokens_as_token_ids", Set.of("false")),
                    Map.entry("return_token_offsets", Set.of("false")),
                    Map.entry("return_prompt_text", Set.of("false")),
                    Map.entry("return_weight_versions", Set.of("false")),
                    Map.entry("routed_experts_prompt_start", Set.of("0")),
                    Map.entry("stream_interval", Set.of("1")));

    private static final Map<String, Set<String>> NEUTRAL_IN_CHATS =
            Map.of("echo", Set.of("false"));

    private RequestFields() {}

    /// @throws HttpProblem 400, naming the field
    static void refuseUnserved(boolean chat, ObjectNode body) {
        for (var entry : body.properties()) {
            var field = entry.getKey();
            if (!SERVED.contains(field)
                    && !HARMLESS.contains(field)
                    && !(chat ? OF_CHATS : OF_COMPLETIONS).contains(field)
                    && !(chat && OF_TEMPLATES.contains(field))) {
                var own = chat ? NEUTRAL_IN_CHATS.get(field) : null;
                refuseUnlessNeutral(
                        field, entry.getValue(), own == null ? NEUTRAL.get(field) : own);
            }
        }
        for (var option : body.path("stream_options").properties()) {
            if (!OF_STREAMS.contains(option.getKey())) {
                refuseUnlessNeutral(
                        "stream_options." + option.getKey(), option.getValue(), Set.of("false"));
            }
        }
    }

    /// The same for `/tokenize`.
    ///
    /// @throws HttpProblem 400, naming the field
    static void refuseUntokenized(boolean chat, ObjectNode body) {
        for (var entry : body.properties()) {
            var field = entry.getKey();
            if (field.equals("model")
                    || chat && OF_TEMPLATES.contains(field)
                    || !chat && Set.of("prompt", "add_special_tokens").contains(field)) {
                continue;
            }
            var neutral =
                    switch (field) {
                        case "return_token_strs" -> Set.of("false");
                        case "tools" -> NEUTRAL.get(field);
                        default -> null;
                    };
            refuseUnlessNeutral(field, entry.getValue(), neutral);
        }
    }

    /// Refuses the fields of an object that are not among `served`, unless they are empty.
    ///
    /// @throws HttpProblem 400, naming the field
    static void refuseBeyond(Set<String> served, String where, JsonNode object) {
        for (var entry : object.properties()) {
            var value = entry.getValue();
            boolean empty =
                    value.isNull()
                            || (value.isArray() || value.isObject()) && value.isEmpty()
                            || value.isString() && value.stringValue().isEmpty();
            if (!empty && !served.contains(entry.getKey())) {
                var field = where.isEmpty() ? entry.getKey() : where + "." + entry.getKey();
                throw HttpProblem.badRequest(field, field + " is not supported here");
            }
        }
    }

    /// @param neutral values that may be given; null for none
    private static void refuseUnlessNeutral(
            String field, JsonNode value, @Nullable Set<String> neutral) {
        if (value.isNull() || neutral != null && neutral.contains(value.toString())) {
            return;
        }
        throw HttpProblem.badRequest(
                field,
                field
                        + " is not supported here"
                        + (neutral == null
                                ? ""
                                : ", beyond " + String.join(" or ", neutral) + "; got " + value));
    }
}
