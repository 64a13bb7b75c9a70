// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.TokenLogprobs;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/// One choice of an answer while it grows: its tokens, what of their text the client may see, and
/// its end.
///
/// Threading: one thread.
final class ChoiceText {
    final int index;

    /// Of the tokens of [#scored], in their order; null for the first token of a prompt.
    final List<@Nullable TokenLogprobs> logprobs = new ArrayList<>();

    private final StopText text;
    private final StringBuilder whole = new StringBuilder();
    private int[] tokens = new int[16];
    private int count;
    private int[] scoredPrompt = new int[0];

    /// Whether a chunk of it was sent.
    boolean begun;

    /// Characters of the tokens whose log-probabilities were written.
    int logprobsOffset;

    private Outcome.@Nullable Finished outcome;

    /// @param echo what stands before the text
    ChoiceText(int index, StopText text, String echo) {
        this.index = index;
        this.text = text;
        whole.append(echo);
    }

    /// The prompt is part of the answer, with its log-probabilities; before any token.
    void score(int[] prompt, List<TokenLogprobs> ofPrompt) {
        scoredPrompt = prompt;
        logprobs.add(null);
        logprobs.addAll(ofPrompt);
    }

    /// The tokens that the log-probabilities belong to.
    int[] scored() {
        int[] all = Arrays.copyOf(scoredPrompt, scoredPrompt.length + count);
        System.arraycopy(tokens, 0, all, scoredPrompt.length, count);
        return all;
    }

    /// Takes a token, and answers the text that it completes.
    String append(int token) {
        if (count == tokens.length) {
            tokens = Arrays.copyOf(tokens, 2 * count);
        }
        tokens[count++] = token;
        var piece = text.append(token);
        whole.append(piece);
        return piece;
    }

    /// Takes the end, and answers the rest of the text.
    String end(Outcome.Finished how) {
        outcome = how;
        var rest = text.end();
        whole.append(rest);
        return rest;
    }

    boolean ended() {
        return outcome != null;
    }

    Outcome.Finished outcome() {
        if (outcome == null) {
            throw new IllegalStateException("choice " + index + " has not ended");
        }
        return outcome;
    }

    int[] tokens() {
        return Arrays.copyOf(tokens, count);
    }

    int tokenCount() {
        return count;
    }

    String text() {
        return whole.toString();
    }
}
