// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import java.util.Arrays;

/// A weight matrix, kept transposed: `rows[i][o]` is the weight from input `i` to output `o`.
///
/// One array per input, as [Kernels#add4] wants them.
///
/// Threading: immutable after loading.
@SuppressWarnings("ArrayRecordComponent") // as large as the model: shared, never copied
record Matrix(float[][] rows) {
    /// Outputs that are worked on together; with [#INPUTS] it keeps a tile of weights within a
    /// second-level cache.
    private static final int OUTPUTS = 256;

    private static final int INPUTS = 128;

    /// Outputs transposed at a time: each pass over the inputs writes one cache line per row.
    private static final int TILE = 16;

    /// From `[out][in]`, one output after the other, as files keep it.
    static Matrix ofFile(float[] values, int out, int in) {
        float[][] rows = new float[in][out];
        for (int from = 0; from < out; from += TILE) {
            int to = Math.min(out, from + TILE);
            for (int i = 0; i < in; i++) {
                float[] row = rows[i];
                for (int o = from; o < to; o++) {
                    row[o] = values[o * in + i];
                }
            }
        }
        return new Matrix(rows);
    }

    private int out() {
        return rows[0].length;
    }

    /// `y[r] = x[r] * this` for the first `n` rows.
    ///
    /// Each output is summed over the inputs in ascending order, one addition each, for every `n`:
    /// this order makes results independent of batching. Only neighbouring outputs are computed in
    /// parallel.
    void multiply(float[][] x, float[][] y, int n) {
        for (int r = 0; r < n; r++) {
            Arrays.fill(y[r], 0, out(), 0f);
        }
        for (int from = 0; from < out(); from += OUTPUTS) {
            int to = Math.min(out(), from + OUTPUTS);
            for (int i = 0; i < rows.length; i += INPUTS) {
                int end = Math.min(rows.length, i + INPUTS);
                for (int r = 0; r < n; r++) {
                    accumulate(x[r], y[r], i, end, from, to);
                }
            }
        }
    }

    private void accumulate(float[] x, float[] y, int i, int end, int from, int to) {
        int at = i;
        for (; at + 3 < end; at += 4) {
            Kernels.add4(
                    y,
                    x[at],
                    rows[at],
                    x[at + 1],
                    rows[at + 1],
                    x[at + 2],
                    rows[at + 2],
                    x[at + 3],
                    rows[at + 3],
                    from,
                    to);
        }
        for (; at < end; at++) {
            Kernels.add1(y, x[at], rows[at], from, to);
        }
    }
}
