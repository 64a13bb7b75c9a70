// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import java.util.Map;

/// What changes the choice of tokens beyond temperature and nucleus. Needs a runner that hands over
/// logits; the order is vLLM's: bias, penalties, temperature, min-p, top-k, top-p.
///
/// @param topK only the `topK` likeliest tokens; 0 for all
/// @param minP only tokens at least this fraction as likely as the likeliest; in [0, 1]
/// @param presencePenalty subtracted from the logit of each token generated before
/// @param frequencyPenalty subtracted once per time that a token was generated before
/// @param repetitionPenalty divides a positive logit, and multiplies a negative one, of each token
///   of prompt and answer; 1 for none
/// @param logitBias added to the logits of some tokens
/// @param minTokens neither end nor stop tokens before so many tokens were generated
/// @param logprobs how many likeliest tokens to tell the log-probability of, beside the chosen one;
///   -1 for no log-probabilities at all
/// @param promptLogprobs the same for the tokens of the prompt, each beside the likeliest ones in
///   its place; needs [Model#scoresPrompts]
public record SamplingOptions(
        int topK,
        double minP,
        double presencePenalty,
        double frequencyPenalty,
        double repetitionPenalty,
        Map<Integer, Double> logitBias,
        int minTokens,
        int logprobs,
        int promptLogprobs) {
    /// No options.
    public static final SamplingOptions NONE = new SamplingOptions(0, 0, 0, 0, 1, Map.of(), 0, -1);

    /// Without log-probabilities of the prompt.
    public SamplingOptions(
            int topK,
            double minP,
            double presencePenalty,
            double frequencyPenalty,
            double repetitionPenalty,
            Map<Integer, Double> logitBias,
            int minTokens,
            int logprobs) {
        this(
                topK,
                minP,
                presencePenalty,
                frequencyPenalty,
                repetitionPenalty,
                logitBias,
                minTokens,
                logprobs,
                -1);
    }

    public SamplingOptions {
        logitBias = Map.copyOf(logitBias);
        if (topK < 0
                || !(minP >= 0 && minP <= 1)
                || !(repetitionPenalty > 0)
                || !Double.isFinite(presencePenalty)
                || !Double.isFinite(frequencyPenalty)
                || !Double.isFinite(repetitionPenalty)
                || minTokens < 0
                || logprobs < -1
                || promptLogprobs < -1) {
            throw new IllegalArgumentException(
                    "sampling options out of range: top_k "
                            + topK
                            + ", min_p "
                            + minP
                            + ", penalties "
                            + presencePenalty
                            + ", "
                            + frequencyPenalty
                            + ", "
                            + repetitionPenalty
                            + ", min_tokens "
                            + minTokens
                            + ", logprobs "
                            + logprobs
                            + ", prompt_logprobs "
                            + promptLogprobs);
        }
    }

    public SamplingOptions withPromptLogprobs(int likeliest) {
        return new SamplingOptions(
                topK,
                minP,
                presencePenalty,
                frequencyPenalty,
                repetitionPenalty,
                logitBias,
                minTokens,
                logprobs,
                likeliest);
    }

    /// Whether log-probabilities of the prompt are wanted. They come from logits, which no cache
    /// keeps: such a request computes its whole prompt.
    public boolean scoresPrompt() {
        return promptLogprobs >= 0;
    }

    /// Whether logits stay as they are.
    public boolean leavesLogits() {
        return presencePenalty == 0
                && frequencyPenalty == 0
                && repetitionPenalty == 1
                && logitBias.isEmpty()
                && minTokens == 0;
    }
}
