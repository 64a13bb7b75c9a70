// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import java.util.Arrays;

/// The arithmetic between the matrices. The order of every sum depends only on the positions of its
/// operands, and no function is used whose last bit may differ between machines.
final class Kernels {
    private Kernels() {}

    /// Root-mean-square normalisation of one row, scaled by `weight`.
    static void rmsNorm(float[] x, float[] weight, float eps, float[] out) {
        double squares = 0;
        for (int i = 0; i < weight.length; i++) {
            squares += (double) x[i] * x[i];
        }
        float scale = (float) (1 / Math.sqrt(squares / weight.length + eps));
        for (int i = 0; i < weight.length; i++) {
            out[i] = weight[i] * (scale * x[i]);
        }
    }

    /// `x += y` over the first `n` elements.
    static void add(float[] x, float[] y, int n) {
        for (int i = 0; i < n; i++) {
            x[i] += y[i];
        }
    }

    /// `gate = silu(gate) * up` over the first `n` elements.
    static void swiGlu(float[] gate, float[] up, int n) {
        for (int i = 0; i < n; i++) {
            gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
        }
    }

    /// `scores[j] = scale * (query . key of position j)` for `n` positions.
    ///
    /// `keys` are columns: `keys[c][j]` is coordinate `c` of position `j`. So positions are
    /// computed side by side, and each score still is one sum over its coordinates in ascending
    /// order.
    ///
    /// @param at first coordinate of the query
    /// @param keyAt first of its `dim` columns
    static void scores(
            float[] query,
            int at,
            int dim,
            float scale,
            float[][] keys,
            int keyAt,
            float[] scores,
            int n) {
        Arrays.fill(scores, 0, n, 0f);
        int d = 0;
        for (; d + 3 < dim; d += 4) {
            add4(
                    scores,
                    query[at + d],
                    keys[keyAt + d],
                    query[at + d + 1],
                    keys[keyAt + d + 1],
                    query[at + d + 2],
                    keys[keyAt + d + 2],
                    query[at + d + 3],
                    keys[keyAt + d + 3],
                    0,
                    n);
        }
        for (; d < dim; d++) {
            add1(scores, query[at + d], keys[keyAt + d], 0, n);
        }
        for (int j = 0; j < n; j++) {
            scores[j] *= scale;
        }
    }

    /// Softmax of the first `n` scores, in place.
    ///
    /// @param octaves scratch for as many
    static void softmax(float[] scores, float[] octaves, int n) {
        float max = scores[0];
        for (int j = 1; j < n; j++) {
            max = Math.max(max, scores[j]);
        }
        // two loops, because the compiler vectorises all of exp but its last step
        for (int j = 0; j < n; j++) {
            float x = bounded(scores[j] - max);
            float octave = octave(x);
            scores[j] = within(x, octave);
            octaves[j] = octave;
        }
        float sum = 0;
        for (int j = 0; j < n; j++) {
            scores[j] *= power(octaves[j]);
            sum += scores[j];
        }
        float inverse = 1 / sum;
        for (int j = 0; j < n; j++) {
            scores[j] *= inverse;
        }
    }

    /// `out[d] = sum over j of weights[j] * values[j][d]` for `d` in `from .. to - 1`, in ascending
    /// order of `j`.
    static void mix(float[] weights, int n, float[][] values, int from, int to, float[] out) {
        Arrays.fill(out, from, to, 0f);
        int j = 0;
        for (; j + 3 < n; j += 4) {
            add4(
                    out,
                    weights[j],
                    values[j],
                    weights[j + 1],
                    values[j + 1],
                    weights[j + 2],
                    values[j + 2],
                    weights[j + 3],
                    values[j + 3],
                    from,
                    to);
        }
        for (; j < n; j++) {
            add1(out, weights[j], values[j], from, to);
        }
    }

    /// `to[at + i] = from[first + i * stride]` for `n` of them.
    static void pick(float[] from, int first, int stride, float[] to, int at, int n) {
        for (int i = 0; i < n; i++) {
            to[at + i] = from[first + i * stride];
        }
    }

    /// `y += xa * a + xb * b + xc * c + xd * d` between `from` and `to`, added in that order, with
    /// a quarter of the loads and stores of `y` that four passes would need.
    ///
    /// All arrays use the same index expression, since the compiler vectorises a loop over several
    /// arrays only then.
    static void add4(
            float[] y,
            float xa,
            float[] a,
            float xb,
            float[] b,
            float xc,
            float[] c,
            float xd,
            float[] d,
            int from,
            int to) {
        for (int i = from; i < to; i++) {
            y[i] = (((y[i] + xa * a[i]) + xb * b[i]) + xc * c[i]) + xd * d[i];
        }
    }

    /// `y += x * a` between `from` and `to`.
    static void add1(float[] y, float x, float[] a, int from, int to) {
        for (int i = from; i < to; i++) {
            y[i] += x * a[i];
        }
    }

    /// e to the `x` within two units in the last place, by float operations alone: `Math.exp` may
    /// differ in its last bit between machines. Reduction to `[-ln 2 / 2, ln 2 / 2]` and polynomial
    /// are those of Cephes' `expf`.
    static float exp(float x) {
        float bounded = bounded(x);
        float octave = octave(bounded);
        return within(bounded, octave) * power(octave);
    }

    /// The arguments whose exponential is a normal number.
    private static float bounded(float x) {
        return Math.max(-87f, Math.min(88f, x));
    }

    /// The power of two nearest to the exponential, as a whole number.
    private static float octave(float bounded) {
        float rounder = 0x1.8p23f;
        return (bounded * 1.442695040f + rounder) - rounder;
    }

    /// The exponential divided by that power.
    private static float within(float bounded, float octave) {
        float r = (bounded - octave * 0.693359375f) + octave * 2.12194440e-4f;
        float p = 1.9875691500e-4f;
        p = p * r + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        return p * (r * r) + r + 1;
    }

    private static float power(float octave) {
        return Float.intBitsToFloat(((int) octave + 127) << 23);
    }
}
