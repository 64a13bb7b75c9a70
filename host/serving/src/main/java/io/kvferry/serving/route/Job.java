// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.HttpCall;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.Deadline;

import tools.jackson.databind.node.ObjectNode;

/// One client request inside the router.
///
/// @param path `/v1/completions` or `/v1/chat/completions`
/// @param body what the client sent
/// @param prompt by what its instances are chosen
/// @param deadline when the request is cancelled, complete or not
record Job(HttpCall call, String path, ObjectNode body, Prompt prompt, Deadline deadline) {
    /// About the tokens of a few KV blocks: prompts that differ only after it go to the same
    /// instance.
    private static final int PREFIX_CHARS = 256;

    boolean streams() {
        return body.path("stream").asBoolean(false);
    }

    /// Whether the client wants log-probabilities of its prompt. They come from logits, which no
    /// cache holds, so the instance that answers computes the prompt itself.
    boolean scoresPrompt() {
        return body.path("echo").asBoolean(false) && body.path("logprobs").isNumber();
    }

    /// The beginning of a request's prompt; requests with the same one go to the same instance.
    static String prefix(ObjectNode body) {
        var prompt = body.path("messages").isArray() ? body.path("messages") : body.path("prompt");
        var text = prompt.isString() ? prompt.stringValue() : Json.text(prompt);
        return body.path("model").asString("")
                + '\n'
                + body.path("cache_salt").asString("")
                + '\n'
                + text.substring(0, Math.min(PREFIX_CHARS, text.length()));
    }

    /// The client's request with other `kv_transfer_params`; without any when `params` is empty.
    ObjectNode withParams(ObjectNode params) {
        var copy = body.deepCopy();
        copy.remove("kv_transfer_params");
        if (!params.isEmpty()) {
            copy.set("kv_transfer_params", params);
        }
        return copy;
    }

    /// The prefill copy of the request: one token, no stream, no minimum number of tokens.
    ObjectNode prefillBody(ObjectNode params) {
        var copy = withParams(params);
        copy.put("stream", false);
        copy.put("max_tokens", 1);
        if (copy.has("max_completion_tokens")) {
            copy.put("max_completion_tokens", 1);
        }
        copy.remove("stream_options");
        copy.remove("min_tokens");
        copy.remove("min_completion_tokens");
        if (copy.has("n")) {
            copy.put("n", 1);
        }
        return copy;
    }
}
