// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.toolkit.safetensors.SafetensorsWriter.Tensor;
import io.kvferry.toolkit.safetensors.TensorType;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.LongStream;

/// The random tensors of the made model.
///
/// Each projection keeps the scale of what it is given; queries and keys are amplified, so that
/// attention picks single tokens far back instead of averaging all, and its output is, so that the
/// next token hangs on them. Without that, greedy output of a random model falls into a short loop.
final class RandomWeights {
    private static final double ATTENTION_GAIN = 2;
    private static final double OUTPUT_GAIN = 2;

    private long state;

    RandomWeights(long seed) {
        this.state = seed;
    }

    List<Tensor> tensors() {
        int h = MakeModel.HIDDEN;
        int q = MakeModel.HEADS * MakeModel.HEAD_DIM;
        int kv = MakeModel.KV_HEADS * MakeModel.HEAD_DIM;
        var tensors = new ArrayList<Tensor>();
        tensors.add(matrix("model.embed_tokens.weight", MakeTokenizer.SIZE, h, 1));
        for (int l = 0; l < MakeModel.LAYERS; l++) {
            String at = "model.layers." + l + ".";
            tensors.add(ones(at + "input_layernorm.weight"));
            tensors.add(
                    matrix(at + "self_attn.q_proj.weight", q, h, ATTENTION_GAIN / Math.sqrt(h)));
            tensors.add(
                    matrix(at + "self_attn.k_proj.weight", kv, h, ATTENTION_GAIN / Math.sqrt(h)));
            tensors.add(matrix(at + "self_attn.v_proj.weight", kv, h, 1 / Math.sqrt(h)));
            tensors.add(matrix(at + "self_attn.o_proj.weight", h, q, OUTPUT_GAIN / Math.sqrt(q)));
            tensors.add(ones(at + "post_attention_layernorm.weight"));
            tensors.add(
                    matrix(
                            at + "mlp.gate_proj.weight",
                            MakeModel.INTERMEDIATE,
                            h,
                            1 / Math.sqrt(h)));
            tensors.add(
                    matrix(at + "mlp.up_proj.weight", MakeModel.INTERMEDIATE, h, 1 / Math.sqrt(h)));
            tensors.add(
                    matrix(
                            at + "mlp.down_proj.weight",
                            h,
                            MakeModel.INTERMEDIATE,
                            1 / Math.sqrt(MakeModel.INTERMEDIATE)));
        }
        tensors.add(ones("model.norm.weight"));
        tensors.add(output(h));
        return tensors;
    }

    /// Rows of tokens that a reader could not print are zero: their logit is 0, which never is the
    /// largest of 512.
    private Tensor output(int hidden) {
        float[] values = values(MakeTokenizer.SIZE * hidden, 1 / Math.sqrt(hidden));
        for (int id = 0; id < MakeTokenizer.SIZE; id++) {
            if (!MakeTokenizer.readable(id)) {
                Arrays.fill(values, id * hidden, (id + 1) * hidden, 0f);
            }
        }
        return tensor("lm_head.weight", values, MakeTokenizer.SIZE, hidden);
    }

    private Tensor matrix(String name, int out, int in, double deviation) {
        return tensor(name, values(out * in, deviation), out, in);
    }

    private static Tensor ones(String name) {
        float[] values = new float[MakeModel.HIDDEN];
        Arrays.fill(values, 1f);
        return tensor(name, values, MakeModel.HIDDEN);
    }

    /// Uniform around zero with the given standard deviation.
    private float[] values(int count, double deviation) {
        double reach = deviation * Math.sqrt(3);
        float[] values = new float[count];
        for (int i = 0; i < count; i++) {
            values[i] = (float) (reach * ((next() >>> 11) * 0x1.0p-52 - 1));
        }
        return values;
    }

    /// SplitMix64 written out, because the bytes of the model must not depend on a library's
    /// version.
    private long next() {
        state += 0x9E3779B97F4A7C15L;
        long z = state;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    private static Tensor tensor(String name, float[] values, long... shape) {
        ByteBuffer bytes =
                ByteBuffer.allocate(values.length * Float.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        bytes.asFloatBuffer().put(values);
        return new Tensor(
                name,
                TensorType.F32,
                LongStream.of(shape).boxed().toList(),
                MemorySegment.ofBuffer(bytes));
    }
}
