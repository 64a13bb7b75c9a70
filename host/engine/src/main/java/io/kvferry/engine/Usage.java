// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import io.kvferry.spi.kv.LookupResult;

import java.util.List;

/// What a request cost, and where its prefix came from.
///
/// @param localTokens prompt tokens found in the engine's own prefix cache
/// @param external prompt tokens that connectors delivered, by source; what they promised and broke
///   is not counted
/// @param computedTokens prompt tokens that the model computed
/// @param preemptions how often it lost its blocks
public record Usage(
        int promptTokens,
        int generatedTokens,
        int localTokens,
        List<LookupResult.Share> external,
        int computedTokens,
        int preemptions) {
    public static final Usage NONE = new Usage(0, 0, 0, List.of(), 0, 0);

    public Usage {
        external = List.copyOf(external);
    }

    /// Tokens that needed no computing: OpenAI's `cached_tokens`.
    public int cachedTokens() {
        return localTokens + external.stream().mapToInt(LookupResult.Share::tokens).sum();
    }
}
