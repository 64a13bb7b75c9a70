// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.model.SamplingOptions;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.model.Tokenizer.ChatMessage;
import io.kvferry.engine.model.Tokenizer.ChatOptions;
import io.kvferry.spi.kv.TransferParams;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.random.RandomGenerator;

/// Reads OpenAI's completion requests with vLLM's additions, after [RequestCheck] has checked their
/// types. Fields that are not served are refused ([RequestFields]).
///
/// Threading: any thread.
final class CompletionParser {
    /// OpenAI's default for `/v1/completions`.
    private static final int DEFAULT_MAX_TOKENS = 16;

    private static final int MAX_CHOICES = 256;

    private static final Set<String> OF_MESSAGES = Set.of("role", "content", "name");
    private static final Set<String> OF_PARTS = Set.of("type", "text");

    private final EngineAccess engine;
    private final PromptTokens tokens;

    /// @param tokens the engine's tokenizer
    CompletionParser(EngineAccess engine, PromptTokens tokens) {
        this.engine = engine;
        this.tokens = tokens;
    }

    /// @throws HttpProblem 400 or 404, naming the field
    CompletionRequest parse(boolean chat, ObjectNode body) throws InterruptedException {
        checkModel(body);
        RequestFields.refuseUnserved(chat, body);
        int n = (int) BodyFields.integer(body, "n", 1);
        if ((long) n * (chat ? 1 : count(body.path("prompt"))) > MAX_CHOICES) {
            throw HttpProblem.badRequest(
                    "n", "n times the number of prompts is more than " + MAX_CHOICES);
        }
        var prompts = chat ? List.of(chatPrompt(body)) : prompts(body);
        var generations = new ArrayList<GenerationRequest>();
        for (int i = 0; i < prompts.size(); i++) {
            generations.addAll(generations(chat, body, prompts.get(i), n, i));
        }
        var options = body.path("stream_options");
        return new CompletionRequest(
                chat,
                generations,
                n,
                BodyFields.flag(body, "stream"),
                options.path("include_usage").asBoolean(false),
                options.path("continuous_usage_stats").asBoolean(false),
                BodyFields.flag(body, "return_token_ids"),
                BodyFields.flag(body, "echo"),
                maxTokens(body, 1) == 0,
                BodyFields.flag(body, "include_stop_str_in_output"),
                logprobs(chat, body));
    }

    private List<GenerationRequest> generations(
            boolean chat, ObjectNode body, int[] whole, int n, int promptIndex) {
        var field = chat ? "messages" : "prompt";
        int[] prompt = truncated(body, whole);
        if (prompt.length == 0) {
            throw HttpProblem.badRequest(field, "the prompt is empty");
        }
        int room = engine.contextTokens() - prompt.length;
        if (room < 1) {
            throw HttpProblem.badRequest(
                    field,
                    "the prompt has "
                            + prompt.length
                            + " tokens; the model's context is "
                            + engine.contextTokens());
        }
        var sampling = sampling(chat, body, room);
        var list = new ArrayList<GenerationRequest>(n);
        for (int i = 0; i < n; i++) {
            // The blocks that P holds can be fetched once: the first choice fetches them.
            boolean fetches = promptIndex == 0 && i == 0;
            list.add(
                    new GenerationRequest(
                                    prompt,
                                    sampling.withSeed(sampling.seed() + i),
                                    fetches
                                            ? BodyFields.params(body, "kv_transfer_params")
                                            : TransferParams.EMPTY,
                                    fetches
                                            ? BodyFields.params(body, "ec_transfer_params")
                                            : TransferParams.EMPTY,
                                    BodyFields.text(body, "cache_salt", ""),
                                    List.of(),
                                    Optional.empty())
                            .withPromptIndex(promptIndex)
                            .withPriority((int) BodyFields.integer(body, "priority", 0)));
        }
        return list;
    }

    /// The last tokens of a prompt, or the first with `"truncation_side": "right"`, where the
    /// request wants no more; -1 means as many as fit.
    private int[] truncated(ObjectNode body, int[] prompt) {
        if (BodyFields.isAbsent(body.path("truncate_prompt_tokens"))) {
            return prompt;
        }
        long most = BodyFields.integer(body, "truncate_prompt_tokens", 0);
        if (most == 0 || most >= engine.contextTokens()) {
            throw HttpProblem.badRequest(
                    "truncate_prompt_tokens",
                    "truncate_prompt_tokens must be -1, or at least 1 and below the model's context of "
                            + engine.contextTokens());
        }
        int keep = most < 0 ? engine.contextTokens() - 1 : (int) most;
        if (prompt.length <= keep) {
            return prompt;
        }
        boolean first = BodyFields.text(body, "truncation_side", "left").equals("right");
        int from = first ? 0 : prompt.length - keep;
        return Arrays.copyOfRange(prompt, from, from + keep);
    }

    /// @throws HttpProblem 404 for another model than the engine's
    void checkModel(ObjectNode body) {
        var model = BodyFields.text(body, "model", engine.modelName());
        if (!model.equals(engine.modelName())) {
            throw HttpProblem.of(
                    404,
                    "model_not_found",
                    "the model " + model + " is not served here; " + engine.modelName() + " is");
        }
    }

    private static int count(JsonNode prompt) {
        return prompt.isArray() && !prompt.path(0).isNumber() ? prompt.size() : 1;
    }

    /// Each prompt's token ids.
    List<int[]> prompts(ObjectNode body) throws InterruptedException {
        var prompt = body.path("prompt");
        boolean special = BodyFields.flag(body, "add_special_tokens", true);
        if (prompt.isString()) {
            var text = prompt.stringValue();
            return List.of(tokens.encode(text, text.length(), special));
        }
        if (prompt.get(0).isNumber()) {
            return List.of(tokenIds("prompt", prompt));
        }
        long length = 0;
        for (var one : prompt) {
            length += one.isString() ? one.stringValue().length() : 0;
        }
        var list = new ArrayList<int[]>(prompt.size());
        for (int i = 0; i < prompt.size(); i++) {
            var one = prompt.get(i);
            list.add(
                    one.isString()
                            ? tokens.encode(one.stringValue(), length, special)
                            : tokenIds("prompt[" + i + "]", one));
        }
        return list;
    }

    int[] tokenIds(String field, JsonNode array) {
        var ids = new int[array.size()];
        for (int i = 0; i < ids.length; i++) {
            ids[i] = array.get(i).intValue();
            if (ids[i] >= engine.vocabulary()) {
                throw HttpProblem.badRequest(
                        field,
                        field
                                + "["
                                + i
                                + "] is "
                                + ids[i]
                                + "; the model's vocabulary has "
                                + engine.vocabulary()
                                + " tokens");
            }
        }
        return ids;
    }

    int[] chatPrompt(ObjectNode body) throws InterruptedException {
        var messages = body.path("messages");
        var turns = new ArrayList<ChatMessage>(messages.size());
        for (int i = 0; i < messages.size(); i++) {
            turns.add(message("messages[" + i + "]", messages.get(i)));
        }
        return tokens.encodeChat(turns, chatOptions(body));
    }

    private static ChatOptions chatOptions(ObjectNode body) {
        boolean continues = BodyFields.flag(body, "continue_final_message");
        var variables = new HashMap<String, Object>();
        if (body.path("chat_template_kwargs") instanceof ObjectNode given) {
            variables.putAll(Json.toMap(given));
        }
        if (body.path("documents").isArray()) {
            variables.putAll(Json.toMap(Json.object().set("documents", body.get("documents"))));
        }
        return new ChatOptions(
                BodyFields.flag(body, "add_generation_prompt", !continues),
                continues,
                BodyFields.flag(body, "add_special_tokens"),
                variables);
    }

    private static ChatMessage message(String where, JsonNode message) {
        var role = message.path("role").asString("");
        if (!List.of("system", "developer", "user", "assistant").contains(role)) {
            throw HttpProblem.badRequest(
                    where + ".role", where + ".role must be system, user or assistant");
        }
        RequestFields.refuseBeyond(OF_MESSAGES, where, message);
        var name = message.path("name");
        if (!BodyFields.isAbsent(name) && !name.isString()) {
            throw HttpProblem.badRequest(where + ".name", where + ".name must be a string");
        }
        return new ChatMessage(
                role.equals("developer") ? "system" : role,
                content(where, message.path("content")),
                name.asString(""));
    }

    /// Text parts become lines, as in vLLM.
    private static String content(String where, JsonNode content) {
        if (content.isString()) {
            return content.stringValue();
        }
        if (!content.isArray()) {
            throw HttpProblem.badRequest(where + ".content", where + ".content must be text");
        }
        var texts = new ArrayList<String>();
        for (var part : content) {
            if (!"text".equals(part.path("type").asString("")) || !part.path("text").isString()) {
                throw HttpProblem.badRequest(
                        where + ".content", where + ".content: only parts of type text are served");
            }
            RequestFields.refuseBeyond(OF_PARTS, where + ".content", part);
            texts.add(part.path("text").stringValue());
        }
        return String.join("\n", texts);
    }

    private static long maxTokens(ObjectNode body, long absent) {
        long most = BodyFields.integer(body, "max_tokens", absent);
        return BodyFields.integer(body, "max_completion_tokens", most);
    }

    private SamplingParams sampling(boolean chat, ObjectNode body, int room) {
        var defaults = engine.defaults();
        int absent =
                defaults.maxTokens() > 0
                        ? Math.min(room, defaults.maxTokens())
                        : chat ? room : Math.min(room, DEFAULT_MAX_TOKENS);
        long maxTokens = Math.max(1, maxTokens(body, absent));
        long minTokens = BodyFields.integer(body, "min_tokens", 0);
        if (minTokens > maxTokens) {
            throw HttpProblem.badRequest(
                    "min_tokens",
                    "min_tokens is " + minTokens + ", more than max_tokens " + maxTokens);
        }
        long seed =
                BodyFields.isAbsent(body.path("seed"))
                        ? RandomGenerator.getDefault().nextLong()
                        : BodyFields.integer(body, "seed", 0);
        return new SamplingParams(
                (int) maxTokens,
                BodyFields.number(body, "temperature", defaults.temperature()),
                BodyFields.number(body, "top_p", defaults.topP()),
                seed,
                stop(body.path("stop")),
                stopTokens(body),
                BodyFields.flag(body, "ignore_eos"),
                new SamplingOptions(
                        Math.max(0, (int) BodyFields.integer(body, "top_k", defaults.topK())),
                        BodyFields.number(body, "min_p", defaults.minP()),
                        BodyFields.number(body, "presence_penalty", 0),
                        BodyFields.number(body, "frequency_penalty", 0),
                        BodyFields.number(body, "repetition_penalty", defaults.repetitionPenalty()),
                        logitBias(body.path("logit_bias")),
                        (int) minTokens,
                        logprobs(chat, body),
                        BodyFields.flag(body, "echo") ? logprobs(chat, body) : -1));
    }

    /// A number for completions; for chats a flag, with the number in `top_logprobs`.
    private static int logprobs(boolean chat, ObjectNode body) {
        var value = body.path("logprobs");
        if (BodyFields.isAbsent(value)) {
            return -1;
        }
        if (value.isBoolean() != chat) {
            throw HttpProblem.badRequest(
                    "logprobs",
                    chat ? "logprobs must be true or false" : "logprobs must be a whole number");
        }
        if (!chat) {
            return value.intValue();
        }
        return value.booleanValue() ? (int) BodyFields.integer(body, "top_logprobs", 0) : -1;
    }

    private static Map<Integer, Double> logitBias(JsonNode bias) {
        var map = new HashMap<Integer, Double>();
        bias.properties()
                .forEach(entry ->
                        map.put(Integer.valueOf(entry.getKey()), entry.getValue().doubleValue()));
        return map;
    }

    /// The request's and, unless it ignores end tokens, those of the model's generation config.
    private List<Integer> stopTokens(ObjectNode body) {
        var ids = new LinkedHashSet<Integer>();
        body.path("stop_token_ids").forEach(id -> ids.add(id.intValue()));
        if (!BodyFields.flag(body, "ignore_eos")) {
            ids.addAll(engine.defaults().endTokens());
        }
        return List.copyOf(ids);
    }

    private static List<String> stop(JsonNode stop) {
        var list = new ArrayList<String>();
        if (stop.isString()) {
            list.add(stop.stringValue());
        }
        stop.forEach(item -> list.add(item.stringValue()));
        return list;
    }
}
