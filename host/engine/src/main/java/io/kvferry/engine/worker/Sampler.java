// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.engine.model.SamplingParams;

import java.util.Arrays;

/// Picks tokens from logits. Draws depend on (seed, position) alone, so a recomputed position draws
/// the same.
///
/// Threading: confined; arrays are reused.
final class Sampler {
    private double[] weights = new double[0];
    private long[] order = new long[0];

    int pick(float[] logits, SamplingParams params, int position) {
        return params.isGreedy() ? greatest(logits) : draw(logits, params, position);
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
        double sum = 0;
        for (int i = 0; i < n; i++) {
            weights[i] = Math.exp((logits[i] - peak) / params.temperature());
            sum += weights[i];
        }
        double uniform = uniform(params.seed(), position);
        return params.topP() < 1 ? nucleus(n, sum, params.topP(), uniform) : walk(n, uniform * sum);
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

    private int nucleus(int n, double sum, double topP, double uniform) {
        // weights lie in [0, 1], where float bits sort like the numbers; equal weights in order of
        // id
        for (int i = 0; i < n; i++) {
            order[i] =
                    (long) Float.floatToIntBits((float) weights[i]) << 32 | Integer.MAX_VALUE - i;
        }
        Arrays.sort(order, 0, n);
        double mass = 0;
        int kept = 0;
        while (kept < n && mass < topP * sum) {
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
