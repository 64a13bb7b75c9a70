// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.Outcome;
import io.kvferry.engine.Usage;
import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;

import org.jspecify.annotations.Nullable;

import tools.jackson.databind.node.ObjectNode;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Objects;

/// The JSON of one request's answer, whole or in chunks, in the form of either endpoint.
///
/// Threading: one thread.
final class CompletionJson {
    private final CompletionRequest request;
    private final Tokenizer tokenizer;
    private final String id;
    private final String model;
    private final long createdSeconds;

    CompletionJson(CompletionRequest request, Tokenizer tokenizer, String requestId, String model) {
        this.request = request;
        this.tokenizer = tokenizer;
        this.id = (request.chat() ? "chatcmpl-" : "cmpl-") + requestId;
        this.model = model;
        this.createdSeconds = System.currentTimeMillis() / 1000;
    }

    /// The answer to a request that does not stream; all its choices have ended.
    ObjectNode whole(List<ChoiceText> choices) {
        var json = head(request.chat() ? "chat.completion" : "text_completion");
        var array = json.putArray("choices");
        for (var one : choices) {
            var choice = array.addObject().put("index", one.index);
            if (request.chat()) {
                choice.putObject("message").put("role", "assistant").put("content", one.text());
            } else {
                choice.put("text", one.text());
            }
            putLogprobs(choice, one, one.scored(), one.logprobs);
            choice.put("finish_reason", name(reason(one.outcome())));
            if (request.returnTokenIds()) {
                putIds(choice, "token_ids", one.tokens());
                putIds(
                        request.chat() ? json : choice,
                        "prompt_token_ids",
                        request.generations().get(one.index).prompt());
            }
        }
        json.set("usage", usage(total(choices)));
        putParams(json, choices);
        return json;
    }

    /// The first chunk of a choice of a chat, which names the role.
    ObjectNode roleChunk(ChoiceText of) {
        var json = head("chat.completion.chunk");
        var choice = json.putArray("choices").addObject().put("index", of.index);
        choice.putObject("delta").put("role", "assistant").put("content", "");
        choice.putNull("logprobs").putNull("finish_reason");
        putPromptIds(json, of);
        return json;
    }

    /// The prompt before the text, with the log-probabilities of its tokens.
    ObjectNode echoChunk(ChoiceText of) {
        var json = chunk(of, of.text(), new int[0], List.of(), null);
        putLogprobs((ObjectNode) json.at("/choices/0"), of, of.scored(), of.logprobs);
        return json;
    }

    /// With the first chunk of a choice, as in vLLM.
    private void putPromptIds(ObjectNode json, ChoiceText of) {
        if (request.returnTokenIds() && !of.begun) {
            putIds(json, "prompt_token_ids", request.generations().get(of.index).prompt());
        }
        of.begun = true;
    }

    /// Why a choice ended. A request for no tokens ends by its length, whatever token the engine
    /// computed.
    FinishReason reason(Outcome.Finished outcome) {
        return request.promptOnly() ? FinishReason.LENGTH : outcome.reason();
    }

    /// One piece of a stream; the last one of a choice carries the reason why it ended.
    ObjectNode chunk(
            ChoiceText of,
            String text,
            int[] tokens,
            List<? extends @Nullable TokenLogprobs> logprobs,
            @Nullable FinishReason reason) {
        var json = head(request.chat() ? "chat.completion.chunk" : "text_completion");
        var choice = json.putArray("choices").addObject().put("index", of.index);
        if (request.chat()) {
            choice.putObject("delta").put("content", text);
        } else {
            choice.put("text", text);
        }
        putLogprobs(choice, of, tokens, logprobs);
        if (reason == null) {
            choice.putNull("finish_reason");
        } else {
            choice.put("finish_reason", name(reason));
        }
        if (request.returnTokenIds()) {
            putIds(choice, "token_ids", tokens);
        }
        putPromptIds(choice, of);
        return json;
    }

    /// Adds the usage up to now to a chunk.
    void putUsageSoFar(ObjectNode chunk, List<ChoiceText> choices) {
        int generated = choices.stream().mapToInt(ChoiceText::tokenCount).sum();
        chunk.putObject("usage")
                .put("prompt_tokens", promptTokens())
                .put("completion_tokens", generated)
                .put("total_tokens", promptTokens() + generated);
    }

    /// The chunk after the last piece: no choices, the usage.
    ObjectNode usageChunk(List<ChoiceText> choices) {
        var json = head(request.chat() ? "chat.completion.chunk" : "text_completion");
        json.putArray("choices");
        json.set("usage", usage(total(choices)));
        return json;
    }

    /// Adds the connectors' params for the next instance, for the only choice; null when there are
    /// none, as vLLM does.
    void putParams(ObjectNode json, List<ChoiceText> choices) {
        var outcome = choices.getFirst().outcome();
        if (outcome.kvParams().values().isEmpty() || choices.size() > 1) {
            json.putNull("kv_transfer_params");
        } else {
            json.set("kv_transfer_params", Json.tree(outcome.kvParams().values()));
        }
        if (!outcome.ecParams().values().isEmpty() && choices.size() == 1) {
            json.set("ec_transfer_params", Json.tree(outcome.ecParams().values()));
        }
    }

    private ObjectNode head(String object) {
        return Json.object()
                .put("id", id)
                .put("object", object)
                .put("created", createdSeconds)
                .put("model", model);
    }

    private void putLogprobs(
            ObjectNode choice,
            ChoiceText of,
            int[] tokens,
            List<? extends @Nullable TokenLogprobs> logprobs) {
        if (request.logprobs() < 0) {
            choice.putNull("logprobs");
        } else if (request.chat()) {
            putChatLogprobs(choice.putObject("logprobs"), tokens, logprobs);
        } else {
            putCompletionLogprobs(choice.putObject("logprobs"), of, tokens, logprobs);
        }
    }

    private void putChatLogprobs(
            ObjectNode json, int[] tokens, List<? extends @Nullable TokenLogprobs> logprobs) {
        var content = json.putArray("content");
        for (int i = 0; i < tokens.length && i < logprobs.size(); i++) {
            var values = Objects.requireNonNull(logprobs.get(i), "chats echo no prompt");
            var entry = content.addObject();
            putToken(entry, tokens[i], values.chosen());
            var top = entry.putArray("top_logprobs");
            for (int k = 0; k < values.topTokens().length; k++) {
                putToken(top.addObject(), values.topTokens()[k], values.topLogprobs()[k]);
            }
        }
    }

    private void putToken(ObjectNode json, int token, float logprob) {
        var text = text(token);
        json.put("token", text).put("logprob", finite(logprob));
        var bytes = json.putArray("bytes");
        for (byte b : text.getBytes(StandardCharsets.UTF_8)) {
            bytes.add(b & 0xff);
        }
    }

    private void putCompletionLogprobs(
            ObjectNode json,
            ChoiceText of,
            int[] tokens,
            List<? extends @Nullable TokenLogprobs> logprobs) {
        var texts = json.putArray("tokens");
        var chosen = json.putArray("token_logprobs");
        var tops = json.putArray("top_logprobs");
        var offsets = json.putArray("text_offset");
        for (int i = 0; i < tokens.length && i < logprobs.size(); i++) {
            var values = logprobs.get(i);
            var text = text(tokens[i]);
            texts.add(text);
            offsets.add(of.logprobsOffset);
            of.logprobsOffset += text.length();
            if (values == null) { // nothing is before the first token
                chosen.addNull();
                tops.addNull();
                continue;
            }
            chosen.add(finite(values.chosen()));
            var top = tops.addObject();
            for (int k = 0; k < values.topTokens().length; k++) {
                top.put(text(values.topTokens()[k]), finite(values.topLogprobs()[k]));
            }
            top.put(text, finite(values.chosen()));
        }
    }

    private String text(int token) {
        return tokenizer.decode(new int[] {token});
    }

    /// JSON has no infinity; vLLM writes -9999.
    private static double finite(float logprob) {
        return Float.isFinite(logprob) ? logprob : -9999.0;
    }

    private int promptTokens() {
        int sum = 0;
        for (int i = 0; i < request.generations().size(); i += request.n()) {
            sum += request.generations().get(i).prompt().length;
        }
        return sum;
    }

    /// The usage of all choices; a prompt counts once, however many choices it has.
    private Usage total(List<ChoiceText> choices) {
        int generated = 0;
        int local = 0;
        int computed = 0;
        int preemptions = 0;
        var external = new ArrayList<LookupResult.Share>();
        for (var choice : choices) {
            Outcome.Finished outcome = choice.outcome();
            var usage = outcome.usage();
            generated += request.promptOnly() ? 0 : usage.generatedTokens();
            preemptions += usage.preemptions();
            if (choice.index % request.n() == 0) {
                local += usage.localTokens();
                computed += usage.computedTokens();
                external.addAll(usage.external());
            }
        }
        return new Usage(promptTokens(), generated, local, external, computed, preemptions);
    }

    /// OpenAI's usage; `prompt_tokens_details` also has the source of the cached tokens.
    private static ObjectNode usage(Usage usage) {
        var json =
                Json.object()
                        .put("prompt_tokens", usage.promptTokens())
                        .put("completion_tokens", usage.generatedTokens())
                        .put("total_tokens", usage.promptTokens() + usage.generatedTokens());
        var details =
                json.putObject("prompt_tokens_details")
                        .put("cached_tokens", usage.cachedTokens())
                        .put("local_tokens", usage.localTokens())
                        .put("computed_tokens", usage.computedTokens());
        var external = details.putObject("external_tokens");
        usage.external()
                .forEach(share -> {
                    int before = external.path(share.source()).asInt(0);
                    external.put(share.source(), before + share.tokens());
                });
        return json;
    }

    private static void putIds(ObjectNode json, String field, int[] ids) {
        var array = json.putArray(field);
        for (int id : ids) {
            array.add(id);
        }
    }

    private static String name(FinishReason reason) {
        return reason.name().toLowerCase(Locale.ROOT);
    }
}
