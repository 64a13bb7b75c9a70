// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.engine.model.LayerHooks;
import io.kvferry.runner.llama.LlamaWeights.Layer;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;

/// The Llama forward pass: RMSNorm, rotary embedding, grouped-query attention over paged KV,
/// SwiGLU.
///
/// Logits and KV of a token are a function of the tokens before it and of the weights, down to the
/// last bit: they do not depend on how the prompt was cut into chunks, on what else is in the
/// batch, or on who computed the pages.
///
/// Threading: safe for any number of concurrent [#forward] calls, each on its caller's thread.
final class LlamaModel {
    private final LlamaConfig config;
    private final LlamaWeights weights;
    private final RopeTable rope;
    private final float scale;

    /// Idle workspaces; more callers than places simply allocate their own.
    private final BlockingQueue<Workspace> idle = new ArrayBlockingQueue<>(4);

    LlamaModel(LlamaConfig config, LlamaWeights weights) {
        this.config = config;
        this.weights = weights;
        this.rope = new RopeTable(config.headDim(), config.contextLength(), config.rope());
        this.scale = (float) (1 / Math.sqrt(config.headDim()));
    }

    /// Loads a Hugging Face folder (`config.json`, `model.safetensors` or its shards).
    ///
    /// @throws KvFerryException naming the file that is missing, broken or of a model that is not
    ///   Llama
    static LlamaModel load(Path modelFolder) {
        LlamaConfig config = LlamaConfig.load(modelFolder);
        return new LlamaModel(config, LlamaWeights.load(modelFolder, config));
    }

    LlamaConfig config() {
        return config;
    }

    /// Part of a chunk that is computed with others as one tile of rows; `firstRow` counts over the
    /// whole batch.
    private record Part(Chunk chunk, int from, int count, int firstRow) {
        int start() {
            return chunk.start() + from;
        }

        int end() {
            return start() + count;
        }
    }

    /// Takes the logits behind the `token`-th token of a chunk; the array is used again.
    @FunctionalInterface
    interface PromptLogits {
        void take(int chunk, int token, float[] logits);
    }

    /// Without logits of prompts.
    List<Optional<float[]>> forward(List<Chunk> chunks, KvPages pages, LayerHooks hooks) {
        return forward(chunks, pages, hooks, (_, _, _) -> {});
    }

    /// Computes all chunks layer by layer, writes their KV to `pages`, and returns for each chunk
    /// the logits behind its last token, where asked for. Chunks of one sequence must be given in
    /// order.
    ///
    /// @throws IllegalArgumentException for a token outside the vocabulary, a position outside the
    ///   context, or a block table that is too short; nothing was written then
    List<Optional<float[]>> forward(
            List<Chunk> chunks, KvPages pages, LayerHooks hooks, PromptLogits prompts) {
        chunks.forEach(chunk -> check(chunk, pages.blockTokens()));
        List<List<Part>> tiles = tiles(chunks);
        @Nullable Workspace kept = idle.poll();
        Workspace w = kept == null ? new Workspace(config) : kept;
        embed(chunks, w);
        for (int l = 0; l < config.layers(); l++) {
            Layer layer = weights.layers().get(l);
            hooks.beforeLayer(l);
            for (List<Part> tile : tiles) {
                attention(tile, l, layer, pages, w);
            }
            hooks.afterLayer(l);
            for (List<Part> tile : tiles) {
                feedForward(tile, layer, w);
            }
        }
        promptLogits(chunks, w, prompts);
        List<Optional<float[]>> logits = logits(chunks, w);
        idle.offer(w);
        return logits;
    }

    private void check(Chunk chunk, int blockTokens) {
        if (chunk.end() > config.contextLength()) {
            throw new IllegalArgumentException(
                    "position "
                            + (chunk.end() - 1)
                            + " is outside the model's context of "
                            + config.contextLength());
        }
        if ((long) chunk.blockTable().length * blockTokens < chunk.end()) {
            throw new IllegalArgumentException(
                    "block table of "
                            + chunk.blockTable().length
                            + " blocks of "
                            + blockTokens
                            + " tokens is too short for position "
                            + (chunk.end() - 1));
        }
        for (int token : chunk.tokens()) {
            if (token < 0 || token >= config.vocabulary()) {
                throw new IllegalArgumentException(
                        "token " + token + " is outside the vocabulary of " + config.vocabulary());
            }
        }
    }

    /// All rows in order, cut into tiles of at most [Workspace#ROWS].
    private static List<List<Part>> tiles(List<Chunk> chunks) {
        var tiles = new ArrayList<List<Part>>();
        int row = 0;
        for (Chunk chunk : chunks) {
            int tokens = chunk.tokens().length;
            for (int from = 0; from < tokens; ) {
                int room = Workspace.ROWS - row % Workspace.ROWS;
                if (room == Workspace.ROWS) {
                    tiles.add(new ArrayList<>());
                }
                int count = Math.min(room, tokens - from);
                tiles.getLast().add(new Part(chunk, from, count, row));
                row += count;
                from += count;
            }
        }
        return tiles;
    }

    private void embed(List<Chunk> chunks, Workspace w) {
        w.reserveRows(chunks.stream().mapToInt(c -> c.tokens().length).sum(), config.hidden());
        int row = 0;
        for (Chunk chunk : chunks) {
            for (int token : chunk.tokens()) {
                System.arraycopy(
                        weights.embedding(),
                        token * config.hidden(),
                        w.residual[row++],
                        0,
                        config.hidden());
            }
        }
    }

    private void attention(List<Part> tile, int l, Layer layer, KvPages pages, Workspace w) {
        int rows = norm(tile, layer.attentionNorm(), w);
        layer.query().multiply(w.normed, w.query, rows);
        layer.key().multiply(w.normed, w.key, rows);
        layer.value().multiply(w.normed, w.value, rows);
        int row = 0;
        for (Part part : tile) {
            for (int t = 0; t < part.count(); t++) {
                rope.rotate(w.query[row + t], config.heads(), part.start() + t);
                rope.rotate(w.key[row + t], config.kvHeads(), part.start() + t);
            }
            gather(part, row, l, pages, w);
            for (int t = 0; t < part.count(); t++) {
                attend(row + t, part.start() + t + 1, w);
            }
            row += part.count();
        }
        layer.out().multiply(w.attended, w.normed, rows);
        addToResidual(tile, w);
    }

    /// Writes the part's keys and values to their pages and lays its whole context out in the
    /// workspace.
    private void gather(Part part, int row, int layer, KvPages pages, Workspace w) {
        int width = 2 * config.kvWidth();
        int size = pages.blockTokens();
        w.reserveContext(part.end(), size * width);
        for (int from = 0; from < part.end(); from += size) {
            int block = part.chunk().blockTable()[from / size];
            int old = Math.clamp(part.start() - from, 0, size);
            int end = Math.min(part.end() - from, size);
            if (old > 0) {
                pages.read(layer, block, 0, old, w.page);
            }
            if (old < end) {
                int first = row + from + old - part.start();
                for (int t = old; t < end; t++) {
                    interleave(w.key[first + t - old], w.value[first + t - old], w.page, t * width);
                }
                pages.write(layer, block, old, end, w.page);
            }
            spread(w, from, end);
        }
    }

    /// Puts each head's key and then its value behind those of the heads before it.
    private void interleave(float[] keys, float[] values, float[] page, int at) {
        int dim = config.headDim();
        for (int from = 0; from < config.kvWidth(); from += dim) {
            System.arraycopy(keys, from, page, at + 2 * from, dim);
            System.arraycopy(values, from, page, at + 2 * from + dim, dim);
        }
    }

    /// Takes the first `count` tokens of the page apart, to positions `first` and up: keys to
    /// columns, values to rows.
    private void spread(Workspace w, int first, int count) {
        int dim = config.headDim();
        int width = 2 * config.kvWidth();
        for (int head = 0; head < config.kvHeads(); head++) {
            int key = 2 * head * dim;
            for (int d = 0; d < dim; d++) {
                Kernels.pick(w.page, key + d, width, w.keys[head * dim + d], first, count);
            }
            for (int t = 0; t < count; t++) {
                float[] values = w.values[first + t];
                System.arraycopy(w.page, t * width + key + dim, values, head * dim, dim);
            }
        }
    }

    /// All heads of one row over the first `context` positions of its sequence.
    private void attend(int row, int context, Workspace w) {
        int dim = config.headDim();
        int group = config.heads() / config.kvHeads();
        float[] query = w.query[row];
        for (int head = 0; head < config.heads(); head++) {
            int at = head * dim;
            int kvAt = head / group * dim;
            Kernels.scores(query, at, dim, scale, w.keys, kvAt, w.scores, context);
            Kernels.softmax(w.scores, w.octaves, context);
            Kernels.mix(w.scores, context, w.values, kvAt, kvAt + dim, w.mixed);
            System.arraycopy(w.mixed, kvAt, w.attended[row], at, dim);
        }
    }

    private void feedForward(List<Part> tile, Layer layer, Workspace w) {
        int rows = norm(tile, layer.feedForwardNorm(), w);
        layer.gate().multiply(w.normed, w.gate, rows);
        layer.up().multiply(w.normed, w.up, rows);
        for (int row = 0; row < rows; row++) {
            Kernels.swiGlu(w.gate[row], w.up[row], config.intermediate());
        }
        layer.down().multiply(w.gate, w.normed, rows);
        addToResidual(tile, w);
    }

    /// Normalises the tile's rows into `normed`; says how many there are.
    private int norm(List<Part> tile, float[] weight, Workspace w) {
        int first = tile.getFirst().firstRow();
        int rows = tile.getLast().firstRow() + tile.getLast().count() - first;
        for (int row = 0; row < rows; row++) {
            Kernels.rmsNorm(w.residual[first + row], weight, config.normEps(), w.normed[row]);
        }
        return rows;
    }

    /// Adds the output of the sub-layer, which is in `normed`, to the residual stream.
    private void addToResidual(List<Part> tile, Workspace w) {
        int first = tile.getFirst().firstRow();
        int rows = tile.getLast().firstRow() + tile.getLast().count() - first;
        for (int row = 0; row < rows; row++) {
            Kernels.add(w.residual[first + row], w.normed[row], config.hidden());
        }
    }

    private List<Optional<float[]>> logits(List<Chunk> chunks, Workspace w) {
        var all = new ArrayList<Optional<float[]>>(chunks.size());
        int row = 0;
        for (Chunk chunk : chunks) {
            row += chunk.tokens().length;
            all.add(
                    chunk.wantLogits()
                            ? Optional.of(
                                    logits(
                                            w.residual[row - 1],
                                            new float[config.hidden()],
                                            new float[config.vocabulary()]))
                            : Optional.empty());
        }
        return all;
    }

    private void promptLogits(List<Chunk> chunks, Workspace w, PromptLogits prompts) {
        if (chunks.stream().allMatch(chunk -> chunk.promptLogits() == 0)) {
            return;
        }
        float[] hidden = new float[config.hidden()];
        float[] logits = new float[config.vocabulary()];
        int row = 0;
        for (int c = 0; c < chunks.size(); c++) {
            for (int t = 0; t < chunks.get(c).promptLogits(); t++) {
                prompts.take(c, t, logits(w.residual[row + t], hidden, logits));
            }
            row += chunks.get(c).tokens().length;
        }
    }

    private float[] logits(float[] residual, float[] hidden, float[] logits) {
        Kernels.rmsNorm(residual, weights.finalNorm(), config.normEps(), hidden);
        weights.output().multiply(new float[][] {hidden}, new float[][] {logits}, 1);
        return logits;
    }
}
