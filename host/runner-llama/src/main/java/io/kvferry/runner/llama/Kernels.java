// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

/// The arithmetic between the matrices. Every sum has one order, given by its operands' positions
/// alone, and nothing is called whose last bit may differ between machines.
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

    /// `scores[j] = scale * (query . keys[j])` for `n` key rows of `stride` floats; four rows at a
    /// time, so that four chains of additions run beside each other and each keeps its order.
    static void scores(
            float[] query,
            int at,
            int dim,
            float scale,
            float[] keys,
            int keysAt,
            int stride,
            float[] scores,
            int n) {
        int j = 0;
        for (; j + 3 < n; j += 4) {
            int k0 = keysAt + j * stride;
            int k1 = k0 + stride;
            int k2 = k1 + stride;
            int k3 = k2 + stride;
            float s0 = 0;
            float s1 = 0;
            float s2 = 0;
            float s3 = 0;
            for (int d = 0; d < dim; d++) {
                float q = query[at + d];
                s0 += q * keys[k0 + d];
                s1 += q * keys[k1 + d];
                s2 += q * keys[k2 + d];
                s3 += q * keys[k3 + d];
            }
            scores[j] = s0 * scale;
            scores[j + 1] = s1 * scale;
            scores[j + 2] = s2 * scale;
            scores[j + 3] = s3 * scale;
        }
        for (; j < n; j++) {
            int k = keysAt + j * stride;
            float s = 0;
            for (int d = 0; d < dim; d++) {
                s += query[at + d] * keys[k + d];
            }
            scores[j] = s * scale;
        }
    }

    /// Softmax of the first `n` scores, in place.
    static void softmax(float[] scores, int n) {
        float max = scores[0];
        for (int j = 1; j < n; j++) {
            max = Math.max(max, scores[j]);
        }
        for (int j = 0; j < n; j++) {
            scores[j] = exp(scores[j] - max);
        }
        float sum = 0;
        for (int j = 0; j < n; j++) {
            sum += scores[j];
        }
        float inverse = 1 / sum;
        for (int j = 0; j < n; j++) {
            scores[j] *= inverse;
        }
    }

    /// `out[at + d] = sum over j of weights[j] * values[j][d]`, in ascending order of `j`, four of
    /// them per pass.
    static void mix(
            float[] weights,
            int n,
            float[] values,
            int valuesAt,
            int stride,
            int dim,
            float[] out,
            int at) {
        for (int d = 0; d < dim; d++) {
            out[at + d] = 0;
        }
        int j = 0;
        for (; j + 3 < n; j += 4) {
            float w0 = weights[j];
            float w1 = weights[j + 1];
            float w2 = weights[j + 2];
            float w3 = weights[j + 3];
            int v0 = valuesAt + j * stride;
            int v1 = v0 + stride;
            int v2 = v1 + stride;
            int v3 = v2 + stride;
            for (int d = 0; d < dim; d++) {
                out[at + d] =
                        (((out[at + d] + w0 * values[v0 + d]) + w1 * values[v1 + d])
                                        + w2 * values[v2 + d])
                                + w3 * values[v3 + d];
            }
        }
        for (; j < n; j++) {
            int v = valuesAt + j * stride;
            for (int d = 0; d < dim; d++) {
                out[at + d] += weights[j] * values[v + d];
            }
        }
    }

    /// e to the `x` within two units in the last place, by float operations alone: `Math.exp` may
    /// differ in its last bit between machines. Reduction to `[-ln 2 / 2, ln 2 / 2]` and polynomial
    /// are those of Cephes' `expf`.
    static float exp(float x) {
        float bounded = Math.max(-87f, Math.min(88f, x));
        float rounder = 0x1.8p23f;
        float n = (bounded * 1.442695040f + rounder) - rounder;
        float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
        float p = 1.9875691500e-4f;
        p = p * r + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        p = p * (r * r) + r + 1;
        return p * Float.intBitsToFloat(((int) n + 127) << 23);
    }
}
