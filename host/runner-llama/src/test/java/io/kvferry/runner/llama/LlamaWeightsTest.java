// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.safetensors.SafetensorsFile;
import io.kvferry.toolkit.safetensors.SafetensorsWriter;
import io.kvferry.toolkit.safetensors.SafetensorsWriter.Tensor;
import io.kvferry.toolkit.safetensors.TensorInfo;
import io.kvferry.toolkit.safetensors.TensorType;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

class LlamaWeightsTest {
    @TempDir Path folder;

    private Path model;
    private ObjectNode config;

    @BeforeEach
    void makeModel() throws IOException {
        model = folder.resolve("m");
        MakeModel.write(model, 42);
        config =
                (ObjectNode)
                        new JsonMapper().readTree(Files.readAllBytes(model.resolve("config.json")));
    }

    private void saveConfig() throws IOException {
        Files.writeString(model.resolve("config.json"), config.toString());
    }

    /// The made model's tensors in another type, without those whose name starts with `without`.
    private List<Tensor> converted(TensorType type, String without) {
        var tensors = new ArrayList<Tensor>();
        try (var file = SafetensorsFile.open(model.resolve("model.safetensors"))) {
            for (TensorInfo info : file.tensors().values()) {
                if (!info.name().startsWith(without)) {
                    float[] values =
                            file.segment(info.name()).toArray(ValueLayout.JAVA_FLOAT_UNALIGNED);
                    tensors.add(new Tensor(info.name(), type, info.shape(), narrow(values, type)));
                }
            }
        }
        return tensors;
    }

    private static MemorySegment narrow(float[] values, TensorType type) {
        var bytes =
                ByteBuffer.allocate(values.length * type.bytes()).order(ByteOrder.LITTLE_ENDIAN);
        for (float value : values) {
            switch (type) {
                case BF16 -> bytes.putShort((short) (Float.floatToRawIntBits(value) >> 16));
                case F16 -> bytes.putShort(Float.floatToFloat16(value));
                case F32 -> bytes.putFloat(value);
                default -> throw new AssertionError(type);
            }
        }
        return MemorySegment.ofBuffer(bytes.flip());
    }

    @ParameterizedTest
    @EnumSource(names = {"BF16", "F16"})
    void widensHalfPrecisionShards(TensorType type) throws IOException {
        float[] exact = LlamaWeights.load(model, LlamaConfig.load(model)).embedding();
        List<Tensor> all = converted(type, "none");
        var map = new JsonMapper().createObjectNode();
        for (int shard = 0; shard < 2; shard++) {
            String name = "model-0000" + (shard + 1) + "-of-00002.safetensors";
            List<Tensor> half = all.subList(shard * all.size() / 2, (shard + 1) * all.size() / 2);
            SafetensorsWriter.write(model.resolve(name), Map.of(), half, false);
            half.forEach(tensor -> map.put(tensor.name(), name));
        }
        Files.delete(model.resolve("model.safetensors"));
        Files.writeString(
                model.resolve("model.safetensors.index.json"),
                new JsonMapper().createObjectNode().set("weight_map", map).toString());
        LlamaWeights weights = LlamaWeights.load(model, LlamaConfig.load(model));
        assertThat(weights.layers()).hasSize(MakeModel.LAYERS);
        for (int i = 0; i < exact.length; i++) {
            assertThat(weights.embedding()[i])
                    .isCloseTo(exact[i], within(Math.abs(exact[i]) / 100 + 1e-6f));
        }
    }

    @Test
    void tiesTheOutputToTheEmbedding() throws IOException {
        SafetensorsWriter.write(
                model.resolve("model.safetensors"),
                Map.of(),
                converted(TensorType.F32, "lm_head"),
                false);
        config.put("tie_word_embeddings", true);
        saveConfig();
        LlamaWeights weights = LlamaWeights.load(model, LlamaConfig.load(model));
        assertThat(weights.output().rows()[5][300])
                .isEqualTo(weights.embedding()[300 * MakeModel.HIDDEN + 5]);
    }

    @Test
    void namesAMissingTensor() {
        SafetensorsWriter.write(
                model.resolve("model.safetensors"),
                Map.of(),
                converted(TensorType.F32, "model.layers.3.mlp.up"),
                false);
        assertRefused(ErrorCode.INCOMPATIBLE, "model.layers.3.mlp.up_proj.weight");
    }

    @Test
    void refusesAShardOutsideTheFolder() throws IOException {
        Files.writeString(
                model.resolve("model.safetensors.index.json"),
                "{\"weight_map\":{\"a\":\"../x.safetensors\"}}");
        assertRefused(ErrorCode.CORRUPT, "not a plain file name");
    }

    @ParameterizedTest
    @CsvSource({
        "model_type,'\"gemma\"',UNSUPPORTED,model_type gemma",
        "hidden_act,'\"gelu\"',UNSUPPORTED,hidden_act gelu",
        "attention_bias,true,UNSUPPORTED,attention_bias",
        "rope_scaling,'{\"rope_type\":\"yarn\"}',UNSUPPORTED,yarn",
        "num_key_value_heads,3,CORRUPT,multiple of kvHeads",
        "num_hidden_layers,0,CORRUPT,positive",
        "hidden_size,64,INCOMPATIBLE,config.json asks for",
    })
    void namesWhatDoesNotFit(String key, String json, ErrorCode code, String hint)
            throws IOException {
        config.set(key, new JsonMapper().readTree(json));
        saveConfig();
        assertRefused(code, hint);
    }

    @Test
    void namesAMissingFolder() throws IOException {
        Files.delete(model.resolve("config.json"));
        assertRefused(ErrorCode.NOT_FOUND, "make-model");
    }

    private void assertRefused(ErrorCode code, String hint) {
        assertThatThrownBy(() -> LlamaModel.load(model))
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code))
                .hasMessageContaining(hint);
    }
}
