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

    /// Keys of one sequence and layer, a column per coordinate: `keys[c][position]`; grown on
    /// demand.
    final float[][] keys;

    /// Values of the same, a row per position; grown on demand.
    float[][] values = new float[0][];

    /// One block of KV as its page has it.
    float[] page = new float[0];

    /// What one query head mixes, at its KV head's place.
    final float[] mixed;

    float[] scores = new float[0];

    /// Scratch of the softmax of `scores`.
    float[] octaves = new float[0];

    Workspace(LlamaConfig c) {
        normed = new float[ROWS][c.hidden()];
        query = new float[ROWS][c.queryWidth()];
        key = new float[ROWS][c.kvWidth()];
        value = new float[ROWS][c.kvWidth()];
        attended = new float[ROWS][c.queryWidth()];
        gate = new float[ROWS][c.intermediate()];
        up = new float[ROWS][c.intermediate()];
        keys = new float[c.kvWidth()][0];
        mixed = new float[c.kvWidth()];
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

    /// Makes room for a context of `tokens`, gathered by pages of `pageFloats`; grows by half at
    /// least, so that decoding does not grow it each step. What was in it is lost.
    void reserveContext(int tokens, int pageFloats) {
        if (page.length < pageFloats) {
            page = new float[pageFloats];
        }
        int had = scores.length;
        if (had < tokens) {
            int room = Math.max(tokens, had + had / 2);
            scores = new float[room];
            octaves = new float[room];
            for (int c = 0; c < keys.length; c++) {
                keys[c] = new float[room];
            }
            values = Arrays.copyOf(values, room);
            for (int position = had; position < room; position++) {
                values[position] = new float[keys.length];
            }
        }
    }
}
