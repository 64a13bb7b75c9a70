// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.spi.kv.FinishReason;

import org.jspecify.annotations.Nullable;

import java.util.HashSet;
import java.util.List;
import java.util.Optional;

/// Decides when a generation ends. One per request.
final class StopCriteria {
    private final int[] endTokens;
    private final List<String> strings;

    /// Tokens of the whole sequence at which the length ends it.
    private final int mostTokens;

    private final Tokenizer.@Nullable StreamDecoder decoder;
    private final StringBuilder tail = new StringBuilder();
    private final int longest;

    StopCriteria(RequestState request, ModelInfo model, Tokenizer tokenizer) {
        var sampling = request.sampling();
        var ends = new HashSet<>(sampling.stopTokens());
        if (!sampling.ignoreEos()) {
            ends.addAll(model.eosTokens());
        }
        endTokens = ends.stream().mapToInt(Integer::intValue).toArray();
        strings = sampling.stop();
        mostTokens =
                (int)
                        Math.min(
                                model.contextTokens(),
                                (long) request.promptTokenCount() + sampling.maxTokens());
        decoder = strings.isEmpty() ? null : tokenizer.streamDecoder();
        longest = strings.stream().mapToInt(String::length).max().orElse(0);
    }

    boolean isEnd(int token) {
        for (int end : endTokens) {
            if (end == token) {
                return true;
            }
        }
        return false;
    }

    /// After a token was appended.
    Optional<FinishReason> after(RequestState request, int token) {
        if (decoder != null) {
            var piece = decoder.append(token);
            boolean early = request.generatedCount() < request.sampling().options().minTokens();
            if (!early && completesString(piece)) {
                return Optional.of(FinishReason.STOP);
            }
        }
        return request.tokenCount() >= mostTokens
                ? Optional.of(FinishReason.LENGTH)
                : Optional.empty();
    }

    private boolean completesString(String piece) {
        tail.append(piece);
        for (var stop : strings) {
            if (tail.indexOf(stop) >= 0) {
                return true;
            }
        }
        if (tail.length() >= longest) {
            tail.delete(0, tail.length() - longest + 1);
        }
        return false;
    }
}
