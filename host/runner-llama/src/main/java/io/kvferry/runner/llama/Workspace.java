// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import java.util.Arrays;

/// The arrays of one forward call, kept for the next one: nothing is allocated per call once they
/// have grown.
///
/// Threading: one call at a time.
final class Workspace {
    /// Rows that are computed together; a longer batch goes through each layer in tiles of this
    /// many.
    static final int ROWS = 256;

    /// The residual stream of all rows of the batch; grown on demand.
    float[][] residual = new float[0][];

    final float[][] normed;
    final float[][] query;
    final float[][] key;
    final float[][] value;
    final float[][] attended;
    final float[][] gate;
    final float[][] up;

    /// Keys and values of one sequence and layer, gathered from its pages in their form; grown on
    /// demand.
    float[] context = new float[0];

    float[] scores = new float[0];

    Workspace(LlamaConfig c) {
        normed = new float[ROWS][c.hidden()];
        query = new float[ROWS][c.queryWidth()];
        key = new float[ROWS][c.kvWidth()];
        value = new float[ROWS][c.kvWidth()];
        attended = new float[ROWS][c.queryWidth()];
        gate = new float[ROWS][c.intermediate()];
        up = new float[ROWS][c.intermediate()];
    }

    /// Makes room for a batch of `rows` tokens.
    void reserveRows(int rows, int hidden) {
        int had = residual.length;
        if (had < rows) {
            residual = Arrays.copyOf(residual, rows);
            for (int row = had; row < rows; row++) {
                residual[row] = new float[hidden];
            }
        }
    }

    /// Makes room for a context of `tokens`; grows by half at least, so that decoding does not grow
    /// it each step. What was in it is lost.
    void reserveContext(int tokens, int width) {
        if (scores.length < tokens) {
            int room = Math.max(tokens, scores.length + scores.length / 2);
            scores = new float[room];
            context = new float[room * width];
        }
    }
}
