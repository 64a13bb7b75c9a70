// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.GenerationRequest;

/// A parsed request of `/v1/completions` or `/v1/chat/completions`.
///
/// @param chat which of the two
/// @param stream server-sent events instead of one answer
/// @param includeUsage a last chunk with the usage, for streams
/// @param returnTokenIds token ids beside the text, as vLLM's `return_token_ids`
record CompletionRequest(
        boolean chat,
        boolean stream,
        boolean includeUsage,
        boolean returnTokenIds,
        GenerationRequest generation) {}
