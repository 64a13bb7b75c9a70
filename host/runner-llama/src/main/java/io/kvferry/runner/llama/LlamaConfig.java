// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/// The numbers of a Llama-family `config.json`.
///
/// @param hidden width of the residual stream
/// @param intermediate width inside the feed-forward block
/// @param heads query heads; a multiple of `kvHeads`
/// @param headDim width of one head; even
/// @param contextLength positions that the model was made for
/// @param normEps added to the mean square in RMSNorm
/// @param rope rotary embedding
/// @param tiedEmbeddings whether the output matrix is the embedding
/// @param bosToken id put before every prompt, where the model has one
/// @param eosTokens ids that end a sequence
record LlamaConfig(
        int hidden,
        int intermediate,
        int layers,
        int heads,
        int kvHeads,
        int headDim,
        int vocabulary,
        int contextLength,
        float normEps,
        Rope rope,
        boolean tiedEmbeddings,
        Optional<Integer> bosToken,
        Set<Integer> eosTokens) {

    /// The file that a model folder keeps these numbers in.
    public static final String FILE_NAME = "config.json";

    /// Rotary embedding: base, and how frequencies are stretched for long contexts.
    public record Rope(double theta, Scaling scaling) {}

    /// Stretching of rotary frequencies, as `rope_scaling` names it.
    public sealed interface Scaling {
        record None() implements Scaling {}

        /// Every frequency divided by `factor`.
        record Linear(double factor) implements Scaling {}

        /// Llama 3.1 and later: low frequencies divided by `factor`, high ones kept, a ramp
        /// between.
        record Llama3(double factor, double lowFactor, double highFactor, double originalContext)
                implements Scaling {}
    }

    public LlamaConfig {
        for (int value :
                new int[] {
                    hidden, intermediate, layers, heads, kvHeads, headDim, vocabulary, contextLength
                }) {
            if (value < 1) {
                throw new IllegalArgumentException(
                        "every dimension must be positive: hidden="
                                + hidden
                                + " intermediate="
                                + intermediate
                                + " layers="
                                + layers
                                + " heads="
                                + heads
                                + " kvHeads="
                                + kvHeads
                                + " headDim="
                                + headDim
                                + " vocabulary="
                                + vocabulary
                                + " context="
                                + contextLength);
            }
        }
        if (heads % kvHeads != 0 || headDim % 2 != 0) {
            throw new IllegalArgumentException(
                    "heads="
                            + heads
                            + " must be a multiple of kvHeads="
                            + kvHeads
                            + ", headDim="
                            + headDim
                            + " even");
        }
        eosTokens = Set.copyOf(eosTokens);
    }

    /// Floats that one token takes in K, and again in V, per layer.
    public int kvWidth() {
        return kvHeads * headDim;
    }

    /// Floats of the query of one token.
    int queryWidth() {
        return heads * headDim;
    }

    /// Reads `config.json` in a model folder.
    ///
    /// @throws KvFerryException [ErrorCode#NOT_FOUND] without such a file, [ErrorCode#CORRUPT] for
    ///   one that is not JSON or contradicts itself, [ErrorCode#UNSUPPORTED] for a model that is
    ///   not plain Llama
    public static LlamaConfig load(Path modelFolder) {
        Path file = modelFolder.resolve(FILE_NAME);
        try {
            JsonNode json = new JsonMapper().readTree(Files.readAllBytes(file));
            rejectUnsupported(json, file);
            return read(json);
        } catch (NoSuchFileException e) {
            throw new KvFerryException(
                    ErrorCode.NOT_FOUND,
                    "no " + file + "; `kvferry make-model` writes a small model folder",
                    e);
        } catch (IOException e) {
            throw FileTrouble.exception("cannot read " + file, e);
        } catch (JacksonException e) {
            throw new KvFerryException(ErrorCode.CORRUPT, file + ": " + e.getOriginalMessage(), e);
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(ErrorCode.CORRUPT, file + ": " + e.getMessage(), e);
        }
    }

    /// What would change the arithmetic and is not implemented must not be computed wrongly.
    private static void rejectUnsupported(JsonNode json, Path file) {
        var strange = new HashSet<String>();
        String type = json.path("model_type").asString("none");
        if (!type.equals("llama")) {
            strange.add("model_type " + type);
        }
        String activation = json.path("hidden_act").asString("silu");
        if (!activation.equals("silu")) {
            strange.add("hidden_act " + activation);
        }
        for (String flag : List.of("attention_bias", "mlp_bias")) {
            if (json.path(flag).asBoolean(false)) {
                strange.add(flag);
            }
        }
        if (!strange.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED, file + ": the llama runner does not compute " + strange);
        }
    }

    private static LlamaConfig read(JsonNode json) {
        int hidden = json.path("hidden_size").asInt(0);
        int heads = json.path("num_attention_heads").asInt(0);
        int headDim = json.path("head_dim").asInt(heads == 0 ? 0 : hidden / heads);
        return new LlamaConfig(
                hidden,
                json.path("intermediate_size").asInt(0),
                json.path("num_hidden_layers").asInt(0),
                heads,
                json.path("num_key_value_heads").asInt(heads),
                headDim,
                json.path("vocab_size").asInt(0),
                json.path("max_position_embeddings").asInt(2048),
                json.path("rms_norm_eps").asFloat(1e-6f),
                rope(json),
                json.path("tie_word_embeddings").asBoolean(false),
                json.path("bos_token_id").isInt()
                        ? Optional.of(json.path("bos_token_id").intValue())
                        : Optional.empty(),
                ids(json.path("eos_token_id")));
    }

    private static Set<Integer> ids(JsonNode node) {
        var ids = new HashSet<Integer>();
        if (node.isInt()) {
            ids.add(node.intValue());
        }
        node.forEach(id -> ids.add(id.intValue()));
        return ids;
    }

    /// `rope_scaling` beside `rope_theta`, or both inside `rope_parameters` as newer folders have
    /// it.
    private static Rope rope(JsonNode json) {
        JsonNode parameters =
                json.has("rope_parameters")
                        ? json.path("rope_parameters")
                        : json.path("rope_scaling");
        double theta =
                parameters.path("rope_theta").asDouble(json.path("rope_theta").asDouble(10_000));
        String type =
                parameters.path("rope_type").asString(parameters.path("type").asString("default"));
        double factor = parameters.path("factor").asDouble(1);
        return new Rope(
                theta,
                switch (type) {
                    case "default" -> new Scaling.None();
                    case "linear" -> new Scaling.Linear(factor);
                    case "llama3" ->
                            new Scaling.Llama3(
                                    factor,
                                    parameters.path("low_freq_factor").asDouble(1),
                                    parameters.path("high_freq_factor").asDouble(4),
                                    parameters
                                            .path("original_max_position_embeddings")
                                            .asDouble(8192));
                    default ->
                            throw new KvFerryException(
                                    ErrorCode.UNSUPPORTED,
                                    "the llama runner does not compute rope_type '" + type + "'");
                });
    }
}
