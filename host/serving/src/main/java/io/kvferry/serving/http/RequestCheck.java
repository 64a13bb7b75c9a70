// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.function.BiConsumer;

/// Types and ranges of the fields of OpenAI's completion requests and of vLLM's additions, as far
/// as they can be told without a model: what this refuses, every engine refuses. A router checks
/// before it involves an instance, a server before it tokenises.
///
/// Threading: any thread.
public final class RequestCheck {
    /// Most sequences of one prompt.
    static final int MAX_N = 128;

    private static final int MAX_STOPS = 16;

    /// Names that a chat template knows already, or that vLLM refuses.
    private static final Set<String> OF_THE_TEMPLATE =
            Set.of(
                    "messages",
                    "tools",
                    "documents",
                    "add_generation_prompt",
                    "continue_final_message",
                    "chat_template",
                    "tokenize",
                    "raise_exception",
                    "strftime_now");

    /// Field by field; null counts as absent.
    private static final Map<String, BiConsumer<String, JsonNode>> RULES = rules();

    private RequestCheck() {}

    /// Checks a request body.
    ///
    /// @throws HttpProblem 400, naming the field
    public static void check(boolean chat, ObjectNode body) {
        body.properties()
                .forEach(entry -> {
                    var rule = RULES.get(entry.getKey());
                    if (rule != null && !entry.getValue().isNull()) {
                        rule.accept(entry.getKey(), entry.getValue());
                    }
                });
        if (chat) {
            checkMessages(body.path("messages"));
            if (BodyFields.flag(body, "continue_final_message")
                    && BodyFields.flag(body, "add_generation_prompt")) {
                throw HttpProblem.badRequest(
                        "continue_final_message",
                        "continue_final_message and add_generation_prompt exclude each other");
            }
            if (BodyFields.integer(body, "top_logprobs", 0) > 0
                    && !BodyFields.flag(body, "logprobs")) {
                throw HttpProblem.badRequest(
                        "top_logprobs", "top_logprobs needs \"logprobs\": true");
            }
        } else {
            checkPrompt(body.path("prompt"));
        }
        checkLength(chat, body);
        if (!BodyFields.isAbsent(body.path("stream_options")) && !BodyFields.flag(body, "stream")) {
            throw HttpProblem.badRequest(
                    "stream_options", "stream_options is for \"stream\": true only");
        }
    }

    /// No tokens at all make sense only where the prompt is the answer.
    private static void checkLength(boolean chat, ObjectNode body) {
        for (var field : new String[] {"max_tokens", "max_completion_tokens"}) {
            if (BodyFields.integer(body, field, 1) == 0
                    && (chat || !BodyFields.flag(body, "echo"))) {
                throw HttpProblem.badRequest(
                        field,
                        field
                                + " must be a whole number, at least 1"
                                + (chat ? "" : ", or 0 with \"echo\": true")
                                + "; got 0");
            }
        }
    }

    private static Map<String, BiConsumer<String, JsonNode>> rules() {
        var rules = new LinkedHashMap<String, BiConsumer<String, JsonNode>>();
        for (var field : new String[] {"max_tokens", "max_completion_tokens"}) {
            rules.put(field, whole(0, Integer.MAX_VALUE));
        }
        rules.put("best_of", whole(1, Integer.MAX_VALUE));
        rules.put("n", whole(1, MAX_N));
        rules.put("min_tokens", whole(0, Integer.MAX_VALUE));
        rules.put("top_k", whole(-1, Integer.MAX_VALUE));
        rules.put("priority", whole(Integer.MIN_VALUE, Integer.MAX_VALUE));
        rules.put("seed", whole(Long.MIN_VALUE, Long.MAX_VALUE));
        rules.put("truncate_prompt_tokens", whole(-1, Integer.MAX_VALUE));
        rules.put("truncation_side", RequestCheck::side);
        rules.put("top_logprobs", whole(0, 20));
        rules.put("temperature", number(0, true, 2));
        rules.put("top_p", number(0, false, 1));
        rules.put("min_p", number(0, true, 1));
        rules.put("presence_penalty", number(-2, true, 2));
        rules.put("frequency_penalty", number(-2, true, 2));
        rules.put("repetition_penalty", number(0, false, Double.MAX_VALUE));
        for (var field :
                new String[] {
                    "stream",
                    "echo",
                    "ignore_eos",
                    "include_stop_str_in_output",
                    "return_token_ids",
                    "skip_special_tokens",
                    "add_special_tokens",
                    "add_generation_prompt",
                    "continue_final_message"
                }) {
            rules.put(field, RequestCheck::flag);
        }
        rules.put("logprobs", RequestCheck::logprobs);
        rules.put("stop", RequestCheck::stop);
        rules.put("stop_token_ids", RequestCheck::tokenIds);
        rules.put("logit_bias", RequestCheck::logitBias);
        rules.put("stream_options", RequestCheck::streamOptions);
        for (var field : new String[] {"model", "user", "cache_salt"}) {
            rules.put(field, RequestCheck::text);
        }
        rules.put("documents", RequestCheck::documents);
        rules.put("chat_template_kwargs", RequestCheck::templateVariables);
        for (var field : new String[] {"kv_transfer_params", "ec_transfer_params"}) {
            rules.put(field, RequestCheck::object);
        }
        return rules;
    }

    private static BiConsumer<String, JsonNode> whole(long least, long most) {
        return (field, value) -> {
            if (!value.isIntegralNumber()
                    || !value.canConvertToLong()
                    || value.longValue() < least
                    || value.longValue() > most) {
                throw HttpProblem.badRequest(
                        field,
                        field
                                + " must be a whole number"
                                + (least > Long.MIN_VALUE ? ", at least " + least : "")
                                + (most < Integer.MAX_VALUE ? " and at most " + most : "")
                                + "; got "
                                + value);
            }
        };
    }

    private static BiConsumer<String, JsonNode> number(
            double least, boolean inclusive, double most) {
        return (field, value) -> {
            double got = value.isNumber() ? value.doubleValue() : Double.NaN;
            if (!(inclusive ? got >= least : got > least) || !(got <= most)) {
                throw HttpProblem.badRequest(
                        field,
                        field
                                + " must be a number"
                                + (inclusive ? ", at least " : " above ")
                                + least
                                + (most < Double.MAX_VALUE ? " and at most " + most : "")
                                + "; got "
                                + value);
            }
        };
    }

    private static void side(String field, JsonNode value) {
        var side = value.isString() ? value.stringValue() : "";
        if (!side.equals("left") && !side.equals("right")) {
            throw HttpProblem.badRequest(
                    field, field + " must be \"left\" or \"right\"; got " + value);
        }
    }

    private static void flag(String field, JsonNode value) {
        if (!value.isBoolean()) {
            throw HttpProblem.badRequest(field, field + " must be true or false; got " + value);
        }
    }

    private static void text(String field, JsonNode value) {
        if (!value.isString()) {
            throw HttpProblem.badRequest(field, field + " must be a string; got " + value);
        }
    }

    private static void object(String field, JsonNode value) {
        if (!value.isObject()) {
            throw HttpProblem.badRequest(field, field + " must be an object; got " + value);
        }
    }

    /// A count for completions, a flag for chats.
    private static void logprobs(String field, JsonNode value) {
        if (!value.isBoolean()) {
            whole(0, 20).accept(field, value);
        }
    }

    private static void stop(String field, JsonNode value) {
        boolean right = value.isString() || value.isArray() && value.size() <= MAX_STOPS;
        if (value.isArray()) {
            for (var item : value) {
                right &= item.isString() && !item.stringValue().isEmpty();
            }
        } else if (value.isString()) {
            right = !value.stringValue().isEmpty();
        }
        if (!right) {
            throw HttpProblem.badRequest(
                    field, field + " must be a string, or up to 16 strings, none of them empty");
        }
    }

    static void tokenIds(String field, JsonNode value) {
        if (!value.isArray()) {
            throw HttpProblem.badRequest(field, field + " must be an array of token ids");
        }
        for (int i = 0; i < value.size(); i++) {
            whole(0, Integer.MAX_VALUE).accept(field + "[" + i + "]", value.get(i));
        }
    }

    private static void logitBias(String field, JsonNode value) {
        object(field, value);
        value.properties()
                .forEach(entry -> {
                    if (!entry.getKey().matches("[0-9]{1,9}")) {
                        throw HttpProblem.badRequest(
                                field, field + ": " + entry.getKey() + " is not a token id");
                    }
                    number(-100, true, 100).accept(field + "." + entry.getKey(), entry.getValue());
                });
    }

    private static void documents(String field, JsonNode value) {
        if (!value.isArray()) {
            throw HttpProblem.badRequest(field, field + " must be an array of objects");
        }
        for (int i = 0; i < value.size(); i++) {
            object(field + "[" + i + "]", value.get(i));
        }
    }

    /// Refuses variables whose name the template already uses for something else.
    private static void templateVariables(String field, JsonNode value) {
        object(field, value);
        value.properties()
                .forEach(entry -> {
                    if (OF_THE_TEMPLATE.contains(entry.getKey())) {
                        var where = field + "." + entry.getKey();
                        throw HttpProblem.badRequest(where, where + " is not supported here");
                    }
                });
    }

    private static void streamOptions(String field, JsonNode value) {
        object(field, value);
        value.properties().forEach(entry -> flag(field + "." + entry.getKey(), entry.getValue()));
    }

    private static void checkMessages(JsonNode messages) {
        if (!messages.isArray() || messages.isEmpty()) {
            throw HttpProblem.badRequest(
                    "messages", "messages must be an array with at least one message");
        }
        for (int i = 0; i < messages.size(); i++) {
            if (!messages.get(i).path("role").isString()) {
                var where = "messages[" + i + "].role";
                throw HttpProblem.badRequest(where, where + " must be a string");
            }
        }
    }

    /// A text, token ids, or a list of either.
    private static void checkPrompt(JsonNode prompt) {
        if (prompt.isString()) {
            return;
        }
        if (!prompt.isArray() || prompt.isEmpty()) {
            throw HttpProblem.badRequest(
                    "prompt", "prompt must be a text, token ids, or a list of either");
        }
        var first = prompt.get(0);
        if (first.isNumber()) {
            tokenIds("prompt", prompt);
            return;
        }
        for (int i = 0; i < prompt.size(); i++) {
            var where = "prompt[" + i + "]";
            if (first.isString()) {
                text(where, prompt.get(i));
            } else {
                tokenIds(where, prompt.get(i));
            }
        }
    }
}
