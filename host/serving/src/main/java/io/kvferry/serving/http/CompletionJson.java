// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.Outcome;
import io.kvferry.engine.Usage;
import io.kvferry.spi.kv.FinishReason;

import org.jspecify.annotations.Nullable;

import tools.jackson.databind.node.ObjectNode;

import java.util.Locale;

/// The JSON of one request's answer, whole or in chunks, in the form of either endpoint.
///
/// Threading: one thread.
final class CompletionJson {
    private final CompletionRequest request;
    private final String id;
    private final String model;
    private final long createdSeconds;

    CompletionJson(CompletionRequest request, String requestId, String model) {
        this.request = request;
        this.id = (request.chat() ? "chatcmpl-" : "cmpl-") + requestId;
        this.model = model;
        this.createdSeconds = System.currentTimeMillis() / 1000;
    }

    /// The answer to a request that does not stream.
    ObjectNode whole(String text, Outcome.Finished outcome) {
        var json = head(request.chat() ? "chat.completion" : "text_completion");
        var choice = json.putArray("choices").addObject().put("index", 0);
        if (request.chat()) {
            choice.putObject("message").put("role", "assistant").put("content", text);
        } else {
            choice.put("text", text);
        }
        choice.putNull("logprobs").put("finish_reason", reason(outcome.reason()));
        if (request.returnTokenIds()) {
            putIds(choice, "token_ids", outcome.tokens());
            putIds(
                    request.chat() ? json : choice,
                    "prompt_token_ids",
                    request.generation().prompt());
        }
        json.set("usage", usage(outcome.usage()));
        putParams(json, outcome);
        return json;
    }

    /// The first chunk of a chat, which names the role.
    ObjectNode roleChunk() {
        var json = head("chat.completion.chunk");
        var choice = json.putArray("choices").addObject().put("index", 0);
        choice.putObject("delta").put("role", "assistant").put("content", "");
        choice.putNull("finish_reason");
        return json;
    }

    /// One piece of a stream; the last one carries the reason why it ended.
    ObjectNode chunk(String text, int[] tokens, @Nullable FinishReason reason) {
        var json = head(request.chat() ? "chat.completion.chunk" : "text_completion");
        var choice = json.putArray("choices").addObject().put("index", 0);
        if (request.chat()) {
            choice.putObject("delta").put("content", text);
        } else {
            choice.put("text", text).putNull("logprobs");
        }
        if (reason == null) {
            choice.putNull("finish_reason");
        } else {
            choice.put("finish_reason", reason(reason));
        }
        if (request.returnTokenIds()) {
            putIds(choice, "token_ids", tokens);
        }
        return json;
    }

    /// The chunk after the last piece: no choices, the usage.
    ObjectNode usageChunk(Usage usage) {
        var json = head(request.chat() ? "chat.completion.chunk" : "text_completion");
        json.putArray("choices");
        json.set("usage", usage(usage));
        return json;
    }

    /// Adds what the connectors want the next instance to know; null when there is nothing, as vLLM
    /// does.
    static void putParams(ObjectNode json, Outcome.Finished outcome) {
        if (outcome.kvParams().isEmpty()) {
            json.putNull("kv_transfer_params");
        } else {
            json.set("kv_transfer_params", Json.tree(outcome.kvParams().values()));
        }
        if (!outcome.ecParams().isEmpty()) {
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

    /// OpenAI's usage; `prompt_tokens_details` also tells where the cached tokens came from.
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

    private static String reason(FinishReason reason) {
        return reason.name().toLowerCase(Locale.ROOT);
    }
}
