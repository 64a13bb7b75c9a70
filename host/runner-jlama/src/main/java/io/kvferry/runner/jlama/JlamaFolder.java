// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.jlama;

import io.kvferry.engine.model.ModelInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.toolkit.files.FileTrouble;
import io.kvferry.toolkit.model.ModelDigest;
import io.kvferry.toolkit.safetensors.SafetensorsFile;
import io.kvferry.toolkit.safetensors.TensorInfo;
import io.kvferry.toolkit.safetensors.TensorType;

import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/// A model folder that Jlama computes rightly. It reads more than it computes: other types than
/// F32, sizes that do not divide, or a stretched rotary embedding give wrong tokens without an
/// error, so they are refused here.
record JlamaFolder(
        Path path,
        int hidden,
        int intermediate,
        int layers,
        int heads,
        int kvHeads,
        int vocabulary,
        int context,
        List<Integer> eosTokens) {
    static final String JLAMA_VERSION = "0.8.4";

    /// Keys carry Jlama's own rotation (position plus twice the head's number), so its blocks are
    /// for Jlama alone.
    private static final String RUNNER = "jlama-" + JLAMA_VERSION;

    private static final int LAYOUT_VERSION = 2;

    /// Kernels and thread splits drop what does not divide by this.
    private static final int GRAIN = 16;

    /// Reads and checks a folder, without Jlama.
    ///
    /// @throws KvFerryException [ErrorCode#NOT_FOUND] without a `config.json`, [ErrorCode#CORRUPT]
    ///   for one that is not JSON, [ErrorCode#INCOMPATIBLE] with all reasons why Jlama would
    ///   compute the model wrongly
    static JlamaFolder read(Path path) {
        Path file = path.resolve("config.json");
        try {
            JsonNode json = new JsonMapper().readTree(Files.readAllBytes(file));
            JlamaFolder folder = read(path, json);
            var obstacles = new ArrayList<String>();
            folder.checkSizes(json, obstacles);
            folder.checkWeights(obstacles);
            if (!obstacles.isEmpty()) {
                throw new KvFerryException(
                        ErrorCode.INCOMPATIBLE,
                        path
                                + ": Jlama would compute this model wrongly: "
                                + String.join("; ", obstacles)
                                + ". The runner llama may take it.");
            }
            return folder;
        } catch (NoSuchFileException e) {
            throw new KvFerryException(
                    ErrorCode.NOT_FOUND,
                    "no " + file + "; `kvferry make-model` writes a small model folder",
                    e);
        } catch (IOException e) {
            throw FileTrouble.exception("cannot read the model in " + path, e);
        } catch (JacksonException e) {
            throw new KvFerryException(ErrorCode.CORRUPT, file + ": " + e.getOriginalMessage(), e);
        }
    }

    private static JlamaFolder read(Path path, JsonNode json) {
        int heads = json.path("num_attention_heads").asInt(0);
        var eos = new ArrayList<Integer>();
        JsonNode ids = json.path("eos_token_id");
        if (ids.isInt()) {
            eos.add(ids.intValue());
        }
        ids.forEach(id -> eos.add(id.intValue()));
        return new JlamaFolder(
                path,
                json.path("hidden_size").asInt(0),
                json.path("intermediate_size").asInt(0),
                json.path("num_hidden_layers").asInt(0),
                heads,
                json.path("num_key_value_heads").asInt(heads),
                json.path("vocab_size").asInt(0),
                json.path("max_position_embeddings").asInt(0),
                List.copyOf(eos));
    }

    private void checkSizes(JsonNode json, List<String> obstacles) {
        String type = json.path("model_type").asString("none");
        if (!type.equals("llama")) {
            obstacles.add("model_type is " + type + ", only llama was tried");
        }
        if (heads < 1 || kvHeads < 1 || layers < 1 || context < 1 || heads % kvHeads != 0) {
            obstacles.add(
                    "heads "
                            + heads
                            + ", KV heads "
                            + kvHeads
                            + ", layers "
                            + layers
                            + ", context "
                            + context);
            return;
        }
        int[] sizes = {hidden, intermediate, vocabulary, headDim(), kvHeads * headDim()};
        for (int size : sizes) {
            if (size < 1 || size % GRAIN != 0) {
                obstacles.add("the size " + size + " is no multiple of " + GRAIN);
            }
        }
        if (headDim() != json.path("head_dim").asInt(headDim())) {
            obstacles.add("head_dim is not hidden_size / num_attention_heads");
        }
        if (json.path("rope_scaling").isObject() || json.path("rope_parameters").isObject()) {
            obstacles.add("rope_scaling is set");
        }
        if (!json.path("hidden_act").isString() || eosTokens.isEmpty()) {
            obstacles.add("hidden_act or eos_token_id is missing");
        }
        if (context <= 2 * kvHeads) {
            obstacles.add("the context of " + context + " leaves no usable position");
        }
    }

    private void checkWeights(List<String> obstacles) throws IOException {
        try (var all = Files.list(path)) {
            for (Path file :
                    all.filter(f -> f.toString().endsWith(".safetensors")).sorted().toList()) {
                try (var weights = SafetensorsFile.open(file)) {
                    weights.tensors().values().stream()
                            .filter(tensor -> tensor.type() != TensorType.F32)
                            .findFirst()
                            .map(TensorInfo::type)
                            .ifPresent(type ->
                                    obstacles.add(
                                            file.getFileName() + " holds " + type + ", not F32"));
                }
            }
        }
    }

    int headDim() {
        return hidden / heads;
    }

    /// Floats of one token's keys in one layer, and again of its values.
    int kvWidth() {
        return kvHeads * headDim();
    }

    ModelInfo info() {
        return new ModelInfo(
                String.valueOf(path.toAbsolutePath().normalize().getFileName()),
                ModelDigest.of(path),
                RUNNER,
                ModelInfo.llamaLayers(layers),
                kvHeads,
                headDim(),
                DType.FLOAT32,
                KvLayout.LBNHC,
                LAYOUT_VERSION,
                vocabulary,
                // Its table of rotations ends there for the last KV head.
                context - 2 * (kvHeads - 1),
                eosTokens,
                0);
    }
}
