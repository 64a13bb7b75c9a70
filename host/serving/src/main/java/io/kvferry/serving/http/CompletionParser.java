// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.model.Tokenizer.ChatMessage;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.random.RandomGenerator;

/// Reads OpenAI's completion requests, with vLLM's additions `kv_transfer_params`,
/// `ec_transfer_params`, `cache_salt`, `ignore_eos`, `stop_token_ids` and `return_token_ids`.
///
/// Fields that ask for something this engine cannot do are refused, never ignored; fields that
/// change nothing (`user`, a penalty of 0) are accepted.
///
/// Threading: any thread.
final class CompletionParser {
    /// OpenAI's default for `/v1/completions`.
    private static final int DEFAULT_MAX_TOKENS = 16;

    /// Fields with the only value that this engine can serve.
    private static final Map<String, Double> NEUTRAL =
            Map.ofEntries(
                    Map.entry("n", 1.0),
                    Map.entry("best_of", 1.0),
                    Map.entry("presence_penalty", 0.0),
                    Map.entry("frequency_penalty", 0.0),
                    Map.entry("repetition_penalty", 1.0),
                    Map.entry("length_penalty", 1.0),
                    Map.entry("min_p", 0.0),
                    Map.entry("min_tokens", 0.0));

    private static final List<String> UNSUPPORTED =
            List.of(
                    "logprobs",
                    "top_logprobs",
                    "prompt_logprobs",
                    "echo",
                    "suffix",
                    "use_beam_search",
                    "tools",
                    "functions",
                    "response_format",
                    "structured_outputs",
                    "guided_json",
                    "guided_regex",
                    "logit_bias",
                    "prompt_embeds");

    private final EngineAccess engine;

    CompletionParser(EngineAccess engine) {
        this.engine = engine;
    }

    /// @throws HttpProblem 400 or 404, naming the field
    CompletionRequest parse(boolean chat, ObjectNode body) {
        checkModel(body);
        refuseUnsupported(body);
        int[] prompt = chat ? chatPrompt(body) : prompt(body);
        if (prompt.length == 0) {
            throw HttpProblem.badRequest(chat ? "messages" : "prompt", "the prompt is empty");
        }
        int room = engine.contextTokens() - prompt.length;
        if (room < 1) {
            throw HttpProblem.badRequest(
                    chat ? "messages" : "prompt",
                    "the prompt has "
                            + prompt.length
                            + " tokens; the model's context is "
                            + engine.contextTokens());
        }
        var generation =
                new GenerationRequest(
                        prompt,
                        sampling(body, chat ? room : Math.min(room, DEFAULT_MAX_TOKENS)),
                        Fields.params(body, "kv_transfer_params"),
                        Fields.params(body, "ec_transfer_params"),
                        Fields.text(body, "cache_salt", ""),
                        List.of(),
                        Optional.empty());
        return new CompletionRequest(
                chat,
                Fields.flag(body, "stream"),
                body.path("stream_options").path("include_usage").asBoolean(false),
                Fields.flag(body, "return_token_ids"),
                generation);
    }

    private void checkModel(ObjectNode body) {
        var model = Fields.text(body, "model", engine.modelName());
        if (!model.equals(engine.modelName())) {
            throw HttpProblem.of(
                    404,
                    "model_not_found",
                    "the model " + model + " is not served here; " + engine.modelName() + " is");
        }
    }

    private static void refuseUnsupported(ObjectNode body) {
        NEUTRAL.forEach((field, neutral) -> {
            var value = body.path(field);
            if (!Fields.isAbsent(value) && !(value.isNumber() && value.doubleValue() == neutral)) {
                throw HttpProblem.badRequest(
                        field, field + " is not supported, other than " + neutral);
            }
        });
        for (var field : UNSUPPORTED) {
            var value = body.path(field);
            boolean empty = value.isContainer() && value.isEmpty();
            boolean plainText =
                    field.equals("response_format")
                            && "text".equals(value.path("type").asString(""));
            if (!Fields.isAbsent(value)
                    && !empty
                    && !plainText
                    && !(value.isBoolean() && !value.booleanValue())) {
                throw HttpProblem.badRequest(field, field + " is not supported");
            }
        }
        var topK = body.path("top_k");
        if (!Fields.isAbsent(topK) && !(topK.isIntegralNumber() && topK.longValue() <= 0)) {
            throw HttpProblem.badRequest(
                    "top_k", "top_k is not supported, other than -1 or 0 for all tokens");
        }
    }

    private int[] prompt(ObjectNode body) {
        var prompt = body.path("prompt");
        if (prompt.isArray() && prompt.size() == 1 && !prompt.get(0).isNumber()) {
            prompt = prompt.get(0);
        }
        if (prompt.isString()) {
            return engine.tokenizer().encode(prompt.stringValue());
        }
        if (prompt.isArray() && !prompt.isEmpty() && prompt.get(0).isNumber()) {
            return tokenIds("prompt", prompt);
        }
        throw HttpProblem.badRequest(
                "prompt",
                "prompt must be one string or one array of token ids"
                        + (prompt.isArray() ? ", not several" : ""));
    }

    private static int[] tokenIds(String field, JsonNode array) {
        var ids = new int[array.size()];
        for (int i = 0; i < ids.length; i++) {
            var id = array.get(i);
            if (!id.isIntegralNumber() || !id.canConvertToInt() || id.intValue() < 0) {
                throw HttpProblem.badRequest(field, field + "[" + i + "] is not a token id: " + id);
            }
            ids[i] = id.intValue();
        }
        return ids;
    }

    private int[] chatPrompt(ObjectNode body) {
        var messages = body.path("messages");
        if (!messages.isArray() || messages.isEmpty()) {
            throw HttpProblem.badRequest(
                    "messages", "messages must be an array with at least one message");
        }
        var turns = new ArrayList<ChatMessage>(messages.size());
        for (int i = 0; i < messages.size(); i++) {
            turns.add(message("messages[" + i + "]", messages.get(i)));
        }
        return engine.tokenizer().encodeChat(turns);
    }

    private static ChatMessage message(String where, JsonNode message) {
        var role = message.path("role").asString("");
        if (!List.of("system", "developer", "user", "assistant").contains(role)) {
            throw HttpProblem.badRequest(
                    where + ".role", where + ".role must be system, user or assistant");
        }
        return new ChatMessage(
                role.equals("developer") ? "system" : role,
                content(where, message.path("content")));
    }

    private static String content(String where, JsonNode content) {
        if (content.isString()) {
            return content.stringValue();
        }
        if (!content.isArray()) {
            throw HttpProblem.badRequest(where + ".content", where + ".content must be text");
        }
        var text = new StringBuilder();
        for (var part : content) {
            if (!"text".equals(part.path("type").asString("")) || !part.path("text").isString()) {
                throw HttpProblem.badRequest(
                        where + ".content", where + ".content: only parts of type text are served");
            }
            text.append(part.path("text").stringValue());
        }
        return text.toString();
    }

    private static SamplingParams sampling(ObjectNode body, int defaultMaxTokens) {
        long maxTokens = Fields.integer(body, "max_tokens", defaultMaxTokens);
        maxTokens = Fields.integer(body, "max_completion_tokens", maxTokens);
        if (maxTokens < 1 || maxTokens > Integer.MAX_VALUE) {
            throw HttpProblem.badRequest(
                    "max_tokens", "max_tokens must be at least 1, got " + maxTokens);
        }
        double temperature = Fields.number(body, "temperature", 1.0);
        double topP = Fields.number(body, "top_p", 1.0);
        if (!(temperature >= 0 && temperature <= 2)) {
            throw HttpProblem.badRequest(
                    "temperature", "temperature must be between 0 and 2, got " + temperature);
        }
        if (!(topP > 0 && topP <= 1)) {
            throw HttpProblem.badRequest(
                    "top_p", "top_p must be above 0 and at most 1, got " + topP);
        }
        long seed =
                Fields.isAbsent(body.path("seed"))
                        ? RandomGenerator.getDefault().nextLong()
                        : Fields.integer(body, "seed", 0);
        var stopIds = body.path("stop_token_ids");
        return new SamplingParams(
                (int) maxTokens,
                temperature,
                topP,
                seed,
                stop(body.path("stop")),
                stopIds.isArray() ? boxed(tokenIds("stop_token_ids", stopIds)) : List.of(),
                Fields.flag(body, "ignore_eos"));
    }

    private static List<Integer> boxed(int[] ids) {
        return Arrays.stream(ids).boxed().toList();
    }

    private static List<String> stop(JsonNode stop) {
        if (Fields.isAbsent(stop)) {
            return List.of();
        }
        var list = new ArrayList<String>();
        if (stop.isArray()) {
            stop.forEach(item -> list.add(item.asString("")));
        } else {
            list.add(stop.asString(""));
        }
        if (list.stream().anyMatch(String::isEmpty) || list.size() > 16) {
            throw HttpProblem.badRequest(
                    "stop", "stop must be one to 16 strings that are not empty");
        }
        return list;
    }
}
