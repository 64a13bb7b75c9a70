// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;
import io.kvferry.toolkit.safetensors.SafetensorsWriter;
import io.kvferry.toolkit.safetensors.SafetensorsWriter.Tensor;
import io.kvferry.toolkit.tokenizer.BpeTokenizer;

import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/// Writes a tiny Llama folder with random weights, so that everything runs without a download.
///
/// The model knows nothing; its greedy output is varied, printable, and depends on the whole
/// context, which is what a test of moving KV needs. The same seed gives the same bytes on every
/// machine. All dimensions are multiples of 16 and the weights are F32, as other engines that read
/// the folder want them (Jlama does).
public final class MakeModel {
    static final int HIDDEN = 128;
    static final int INTERMEDIATE = 256;
    static final int LAYERS = 4;
    static final int HEADS = 4;
    static final int KV_HEADS = 2;
    static final int HEAD_DIM = 32;
    static final int CONTEXT = 2048;

    private MakeModel() {}

    /// Writes the folder whole or not at all: into a temporary sibling that is renamed at the end.
    ///
    /// @throws KvFerryException [ErrorCode#INVALID_REQUEST] when `folder` exists,
    ///   [ErrorCode#STORAGE_IO] when it cannot be written
    public static void write(Path folder, long seed) {
        Path target = folder.toAbsolutePath().normalize();
        if (Files.exists(target)) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    target + " exists; remove it or name another folder, nothing was written");
        }
        Path parent = target.getParent();
        if (parent == null) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, target + " cannot be a model folder");
        }
        Path temporary =
                parent.resolve("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
        try {
            Files.createDirectories(temporary);
            fill(temporary, seed);
            Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException e) {
            throw FileTrouble.exception("cannot write " + target, e);
        } finally {
            removeLeftover(temporary);
        }
    }

    private static void fill(Path folder, long seed) throws IOException {
        List<Tensor> tensors = new RandomWeights(seed).tensors();
        SafetensorsWriter.write(
                folder.resolve("model.safetensors"), Map.of("format", "pt"), tensors, false);
        Files.writeString(
                folder.resolve(BpeTokenizer.FILE_NAME), MakeTokenizer.json().toString() + "\n");
        Files.writeString(
                folder.resolve("tokenizer_config.json"), tokenizerConfig().toString() + "\n");
        Files.writeString(
                folder.resolve(LlamaConfig.FILE_NAME),
                config().toPrettyString().replace("\r\n", "\n") + "\n");
    }

    private static ObjectNode config() {
        ObjectNode json = JsonNodeFactory.instance.objectNode();
        json.putArray("architectures").add("LlamaForCausalLM");
        return json.put("model_type", "llama")
                .put("hidden_size", HIDDEN)
                .put("intermediate_size", INTERMEDIATE)
                .put("num_hidden_layers", LAYERS)
                .put("num_attention_heads", HEADS)
                .put("num_key_value_heads", KV_HEADS)
                .put("head_dim", HEAD_DIM)
                .put("vocab_size", MakeTokenizer.SIZE)
                .put("max_position_embeddings", CONTEXT)
                .put("hidden_act", "silu")
                .put("rms_norm_eps", 1e-5)
                .put("rope_theta", 10000.0)
                .put("tie_word_embeddings", false)
                .put("torch_dtype", "float32")
                .put("bos_token_id", MakeTokenizer.BOS)
                .put("eos_token_id", MakeTokenizer.EOS);
    }

    private static ObjectNode tokenizerConfig() {
        return JsonNodeFactory.instance
                .objectNode()
                .put("tokenizer_class", "PreTrainedTokenizerFast")
                .put("bos_token", MakeTokenizer.BOS_TEXT)
                .put("eos_token", MakeTokenizer.EOS_TEXT)
                .put("model_max_length", CONTEXT);
    }

    private static void removeLeftover(Path temporary) {
        if (!Files.exists(temporary)) {
            return;
        }
        try {
            Files.walkFileTree(
                    temporary,
                    new SimpleFileVisitor<>() {
                        @Override
                        public FileVisitResult visitFile(Path file, BasicFileAttributes attributes)
                                throws IOException {
                            Files.delete(file);
                            return FileVisitResult.CONTINUE;
                        }

                        @Override
                        public FileVisitResult postVisitDirectory(Path folder, IOException failure)
                                throws IOException {
                            Files.delete(folder);
                            return FileVisitResult.CONTINUE;
                        }
                    });
        } catch (IOException e) {
            throw FileTrouble.exception("cannot remove " + temporary, e);
        }
    }
}
