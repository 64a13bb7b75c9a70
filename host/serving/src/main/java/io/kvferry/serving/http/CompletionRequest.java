// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.GenerationRequest;

import java.util.List;

/// A parsed request of `/v1/completions` or `/v1/chat/completions`.
///
/// @param chat which of the two
/// @param generations one for each choice of the answer: all choices of the first prompt, then of
///   the next
/// @param n choices of each prompt
/// @param stream server-sent events instead of one answer
/// @param includeUsage a last chunk with the usage, for streams
/// @param continuousUsage the usage so far in each chunk
/// @param returnTokenIds token ids beside the text, as vLLM's `return_token_ids`
/// @param echo the prompt before the text
/// @param promptOnly the request wants no tokens (`"max_tokens": 0` with `echo`). The engine
///   generates one, which is dropped
/// @param includeStop the stop string at the end of the text
/// @param logprobs how many most likely tokens to return at each position; -1 for no
///   log-probabilities
record CompletionRequest(
        boolean chat,
        List<GenerationRequest> generations,
        int n,
        boolean stream,
        boolean includeUsage,
        boolean continuousUsage,
        boolean returnTokenIds,
        boolean echo,
        boolean promptOnly,
        boolean includeStop,
        int logprobs) {
    CompletionRequest {
        generations = List.copyOf(generations);
    }

    /// Whether log-probabilities of the prompt's tokens are part of the answer.
    boolean scoresPrompt() {
        return echo && logprobs >= 0;
    }
}
