// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.spi.KvFerryException;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/// The weights of one model, widened to float32 and laid out for [Matrix].
///
/// @param embedding one row of `hidden` floats per token
/// @param output logits from the normalised hidden state
@SuppressWarnings("ArrayRecordComponent") // as large as the model: shared, never copied
record LlamaWeights(float[] embedding, List<Layer> layers, float[] finalNorm, Matrix output) {

    /// One transformer block.
    ///
    /// @param query, key, value, out attention projections
    /// @param gate, up, down feed-forward projections
    @SuppressWarnings("ArrayRecordComponent") // as above
    record Layer(
            float[] attentionNorm,
            Matrix query,
            Matrix key,
            Matrix value,
            Matrix out,
            float[] feedForwardNorm,
            Matrix gate,
            Matrix up,
            Matrix down) {}

    /// Reads `model.safetensors`, or the shards that `model.safetensors.index.json` lists.
    ///
    /// @throws KvFerryException as [WeightFiles] does; [ErrorCode#INCOMPATIBLE] when a tensor is
    ///   missing or has another shape than `config` asks for
    static LlamaWeights load(Path modelFolder, LlamaConfig config) {
        try (WeightFiles files = WeightFiles.open(modelFolder)) {
            int h = config.hidden();
            float[] embedding = files.floats("model.embed_tokens.weight", config.vocabulary(), h);
            var layers = new ArrayList<Layer>();
            for (int l = 0; l < config.layers(); l++) {
                layers.add(layer(files, "model.layers." + l + ".", config));
            }
            boolean tied = config.tiedEmbeddings() || !files.has("lm_head.weight");
            Matrix output =
                    tied
                            ? Matrix.ofFile(embedding, config.vocabulary(), h)
                            : files.matrix("lm_head.weight", h, config.vocabulary());
            return new LlamaWeights(
                    embedding, List.copyOf(layers), files.floats("model.norm.weight", h), output);
        }
    }

    private static Layer layer(WeightFiles files, String at, LlamaConfig c) {
        int h = c.hidden();
        return new Layer(
                files.floats(at + "input_layernorm.weight", h),
                files.matrix(at + "self_attn.q_proj.weight", h, c.queryWidth()),
                files.matrix(at + "self_attn.k_proj.weight", h, c.kvWidth()),
                files.matrix(at + "self_attn.v_proj.weight", h, c.kvWidth()),
                files.matrix(at + "self_attn.o_proj.weight", c.queryWidth(), h),
                files.floats(at + "post_attention_layernorm.weight", h),
                files.matrix(at + "mlp.gate_proj.weight", h, c.intermediate()),
                files.matrix(at + "mlp.up_proj.weight", h, c.intermediate()),
                files.matrix(at + "mlp.down_proj.weight", c.intermediate(), h));
    }
}
