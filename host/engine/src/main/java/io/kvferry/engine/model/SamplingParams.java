// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import java.util.List;

/// How tokens are chosen and when a generation ends.
///
/// @param maxTokens most tokens to generate, at least 1
/// @param temperature 0 is greedy
/// @param topP nucleus, in (0, 1]
/// @param seed with equal seeds, prompts and models, the same tokens; each position draws from
///   (seed, position), so that a preempted, recomputed or disaggregated request draws what an
///   undisturbed one does
/// @param stop strings that end the generation
/// @param stopTokens more ids that end it, beside the model's own
/// @param ignoreEos go on after the model's end tokens
/// @param options what else changes the choice of tokens
public record SamplingParams(
        int maxTokens,
        double temperature,
        double topP,
        long seed,
        List<String> stop,
        List<Integer> stopTokens,
        boolean ignoreEos,
        SamplingOptions options) {
    /// Without further options.
    public SamplingParams(
            int maxTokens,
            double temperature,
            double topP,
            long seed,
            List<String> stop,
            List<Integer> stopTokens,
            boolean ignoreEos) {
        this(maxTokens, temperature, topP, seed, stop, stopTokens, ignoreEos, SamplingOptions.NONE);
    }

    public SamplingParams {
        stop = List.copyOf(stop);
        stopTokens = List.copyOf(stopTokens);
        if (maxTokens < 1 || !(temperature >= 0) || !(topP > 0 && topP <= 1)) {
            throw new IllegalArgumentException(
                    "maxTokens must be at least 1, temperature at least 0, topP in (0, 1], got "
                            + maxTokens
                            + ", "
                            + temperature
                            + ", "
                            + topP);
        }
        if (stop.stream().anyMatch(String::isEmpty)) {
            throw new IllegalArgumentException("an empty stop string");
        }
    }

    /// Always the likeliest token.
    public static SamplingParams greedy(int maxTokens) {
        return new SamplingParams(maxTokens, 0, 1, 0, List.of(), List.of(), false);
    }

    public SamplingParams withStop(List<String> strings) {
        return new SamplingParams(
                maxTokens, temperature, topP, seed, strings, stopTokens, ignoreEos, options);
    }

    public SamplingParams withIgnoreEos(boolean ignore) {
        return new SamplingParams(
                maxTokens, temperature, topP, seed, stop, stopTokens, ignore, options);
    }

    public SamplingParams withSeed(long other) {
        return new SamplingParams(
                maxTokens, temperature, topP, other, stop, stopTokens, ignoreEos, options);
    }

    public SamplingParams withOptions(SamplingOptions others) {
        return new SamplingParams(
                maxTokens, temperature, topP, seed, stop, stopTokens, ignoreEos, others);
    }

    public boolean isGreedy() {
        return temperature == 0;
    }
}
