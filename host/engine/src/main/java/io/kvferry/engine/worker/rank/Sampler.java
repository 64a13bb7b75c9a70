// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.rank;

import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.engine.worker.PlannedItem;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Optional;

/// Picks tokens from logits. Draws depend on (seed, position) alone, so a recomputed position draws
/// the same.
///
/// Threading: confined; arrays are reused.
final class Sampler {
    private static final float NEVER = Float.NEGATIVE_INFINITY;

    private final List<Integer> endTokens;
    private double[] weights = new double[0];
    private long[] order = new long[0];
    private float[] changed = new float[0];

    /// @param endTokens the model's
    Sampler(List<Integer> endTokens) {
        this.endTokens = List.copyOf(endTokens);
    }

    /// The token at position `item.start() + item.count()`.
    int pick(float[] logits, PlannedItem item) {
        var params = item.sampling();
        int position = item.start() + item.count();
        var adjusted = params.options().leavesLogits() ? logits : adjust(logits, item, position);
        return params.isGreedy() ? greatest(adjusted) : draw(adjusted, params, position);
    }

    /// Log-probabilities of `token` and the likeliest others, where the request wants them.
    Optional<TokenLogprobs> logprobs(float[] logits, PlannedItem item, int token) {
        int wanted = item.sampling().options().logprobs();
        return wanted < 0 ? Optional.empty() : Optional.of(logprobs(logits, wanted, token));
    }

    /// Log-probabilities of the prompt's token that follows the step's `i`-th, and of the likeliest
    /// ones in its place.
    TokenLogprobs promptLogprobs(float[] logits, PlannedItem item, int i) {
        int wanted = item.sampling().options().promptLogprobs();
        return logprobs(logits, wanted, item.tokenAt(item.start() + i + 1));
    }

    private static TokenLogprobs logprobs(float[] logits, int wanted, int token) {
        double peak = logits[greatest(logits)];
        double sum = 0;
        for (float logit : logits) {
            sum += Math.exp(logit - peak);
        }
        double norm = peak + Math.log(sum);
        int[] top = likeliest(logits, Math.min(wanted, logits.length));
        var values = new float[top.length];
        for (int i = 0; i < top.length; i++) {
            values[i] = (float) (logits[top[i]] - norm);
        }
        return new TokenLogprobs((float) (logits[token] - norm), top, values);
    }

    /// By insertion: a few of many.
    private static int[] likeliest(float[] logits, int count) {
        int[] top = new int[count];
        int filled = 0;
        for (int id = 0; id < logits.length && count > 0; id++) {
            if (filled == count && logits[id] <= logits[top[count - 1]]) {
                continue;
            }
            int at = filled < count ? filled++ : count - 1;
            for (; at > 0 && logits[id] > logits[top[at - 1]]; at--) {
                top[at] = top[at - 1];
            }
            top[at] = id;
        }
        return top;
    }

    private float[] adjust(float[] logits, PlannedItem item, int position) {
        int n = logits.length;
        if (changed.length != n) {
            changed = new float[n];
        }
        System.arraycopy(logits, 0, changed, 0, n);
        var options = item.sampling().options();
        options.logitBias()
                .forEach((id, bias) -> {
                    if (id < n) {
                        changed[id] += bias.floatValue();
                    }
                });
        if (position - item.promptTokens() < options.minTokens()) {
            endTokens.forEach(this::forbid);
            item.sampling().stopTokens().forEach(this::forbid);
        }
        penalise(item, position, n);
        return changed;
    }

    private void forbid(int id) {
        if (id < changed.length) {
            changed[id] = NEVER;
        }
    }

    private void penalise(PlannedItem item, int position, int n) {
        var options = item.sampling().options();
        double repetition = options.repetitionPenalty();
        boolean counts = options.presencePenalty() != 0 || options.frequencyPenalty() != 0;
        if (repetition == 1 && !counts) {
            return;
        }
        var generated = new HashMap<Integer, Integer>();
        int from = repetition == 1 ? item.promptTokens() : 0;
        for (int i = from; i < position; i++) {
            generated.merge(item.tokenAt(i), i < item.promptTokens() ? 0 : 1, Integer::sum);
        }
        generated.forEach((id, times) -> {
            if (id >= n) {
                return;
            }
            float logit = changed[id];
            double now = logit > 0 ? logit / repetition : logit * repetition;
            if (times > 0) {
                now -= options.presencePenalty() + times * options.frequencyPenalty();
            }
            changed[id] = (float) now;
        });
    }

    private static int greatest(float[] logits) {
        int best = 0;
        for (int i = 1; i < logits.length; i++) {
            if (logits[i] > logits[best]) {
                best = i;
            }
        }
        return best;
    }

    private int draw(float[] logits, SamplingParams params, int position) {
        int n = logits.length;
        if (weights.length < n) {
            weights = new double[n];
            order = new long[n];
        }
        double peak = logits[greatest(logits)];
        double minP = params.options().minP();
        double sum = 0;
        for (int i = 0; i < n; i++) {
            double weight = Math.exp((logits[i] - peak) / params.temperature());
            weights[i] = weight < minP ? 0 : weight;
            sum += weights[i];
        }
        double uniform = uniform(params.seed(), position);
        int topK = params.options().topK();
        return params.topP() < 1 || topK > 0
                ? nucleus(n, sum, params.topP(), topK == 0 ? n : Math.min(topK, n), uniform)
                : walk(n, uniform * sum);
    }

    private int walk(int n, double target) {
        for (int i = 0; i < n; i++) {
            target -= weights[i];
            if (target < 0) {
                return i;
            }
        }
        return n - 1;
    }

    /// The nucleus of the `topK` likeliest.
    private int nucleus(int n, double sum, double topP, int topK, double uniform) {
        // weights lie in [0, 1], where float bits sort like the numbers; equal weights in order of
        // id
        for (int i = 0; i < n; i++) {
            order[i] =
                    (long) Float.floatToIntBits((float) weights[i]) << 32 | Integer.MAX_VALUE - i;
        }
        Arrays.sort(order, 0, n);
        double whole = topK == n ? sum : 0;
        for (int i = 0; i < topK && topK < n; i++) {
            whole += weights[id(n - 1 - i)];
        }
        double mass = 0;
        int kept = 0;
        while (kept < topK && mass < topP * whole) {
            mass += weights[id(n - 1 - kept++)];
        }
        double target = uniform * mass;
        for (int i = 0; i < kept; i++) {
            target -= weights[id(n - 1 - i)];
            if (target < 0) {
                return id(n - 1 - i);
            }
        }
        return id(n - 1);
    }

    private int id(int rank) {
        return Integer.MAX_VALUE - (int) (order[rank] & 0xffff_ffffL);
    }

    /// SplitMix64 of (seed, position), as a number in [0, 1).
    private static double uniform(long seed, int position) {
        long z = seed + (position + 1L) * 0x9E3779B97F4A7C15L;
        z = (z ^ z >>> 30) * 0xBF58476D1CE4E5B9L;
        z = (z ^ z >>> 27) * 0x94D049BB133111EBL;
        return ((z ^ z >>> 31) >>> 11) * 0x1p-53;
    }
}
