// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.runner.llama.LlamaConfig.Scaling;

/// Rotary position embedding in the half-split form of Hugging Face folders: element `i` of a head
/// turns with element `i + headDim / 2`.
///
/// Cosines and sines come from [StrictMath], so that two machines rotate by the same bits.
///
/// Threading: immutable.
final class RopeTable {
    private final int half;
    private final float[] cosines;
    private final float[] sines;

    RopeTable(int headDim, int positions, LlamaConfig.Rope rope) {
        half = headDim / 2;
        cosines = new float[Math.multiplyExact(positions, half)];
        sines = new float[cosines.length];
        for (int i = 0; i < half; i++) {
            float frequency =
                    (float)
                            scaled(
                                    1 / StrictMath.pow(rope.theta(), 2.0 * i / headDim),
                                    rope.scaling());
            for (int p = 0; p < positions; p++) {
                float angle = p * frequency;
                cosines[p * half + i] = (float) StrictMath.cos(angle);
                sines[p * half + i] = (float) StrictMath.sin(angle);
            }
        }
    }

    private static double scaled(double frequency, Scaling scaling) {
        return switch (scaling) {
            case Scaling.None() -> frequency;
            case Scaling.Linear(double factor) -> frequency / factor;
            case Scaling.Llama3(double factor, double low, double high, double context) -> {
                double turns = context * frequency / (2 * Math.PI);
                double keep = Math.clamp((turns - low) / (high - low), 0, 1);
                yield keep * frequency + (1 - keep) * frequency / factor;
            }
        };
    }

    /// Rotates the first `heads` heads of a row, in place.
    void rotate(float[] x, int heads, int position) {
        int table = position * half;
        for (int head = 0; head < heads; head++) {
            int from = head * 2 * half;
            for (int i = 0; i < half; i++) {
                float a = x[from + i];
                float b = x[from + half + i];
                float cos = cosines[table + i];
                float sin = sines[table + i];
                x[from + i] = a * cos - b * sin;
                x[from + half + i] = a * sin + b * cos;
            }
        }
    }
}
