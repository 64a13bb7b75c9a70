// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.engine.model.LayerHooks;
import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.model.StepBatch;
import io.kvferry.engine.model.StepOutput;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.TreeMap;

/// The engine's side of the runner contract, by hand: regions, block tables, one call of `execute`
/// at a time. Blocks lie apart from each other and out of order, as they do after a while in a real
/// pool.
public final class RunnerRig implements AutoCloseable {
    public static final int BLOCK = 16;
    private static final long GAP = 64;
    private static final ValueLayout.OfFloat F32 =
            ValueLayout.JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

    private final Arena arena = Arena.ofShared();
    private final List<KvRegion> regions = new ArrayList<>();
    private final ModelInfo info;
    private final ModelRunner runner;
    private final List<String> ended = new ArrayList<>();
    private final List<Integer> free = new ArrayList<>();
    private LayerHooks hooks = LayerHooks.NONE;
    private long step;

    public RunnerRig(Model model, int blocks) {
        this(model, blocks, model.info().layout());
    }

    public RunnerRig(Model model, int blocks, KvLayout layout) {
        info = model.info(Optional.of(layout), "test");
        long bytes = info.blockBytes(BLOCK, 1);
        List<String> layers = info.groups().getFirst().layers();
        for (int l = 0; l < layers.size(); l++) {
            var memory = new MemoryRange.Host(arena.allocate(blocks * (bytes + GAP), 64));
            regions.add(new KvRegion(layers.get(l), l, 0, memory, blocks, bytes, bytes + GAP));
        }
        for (int i = 0; i < blocks; i++) {
            free.add((i * 7 + 3) % blocks);
        }
        runner =
                model.openRunner(
                        new RunnerContext(
                                RankInfo.SINGLE, info.cacheSpec(BLOCK, blocks, 1), regions));
    }

    /// The hooks of all following steps.
    public void hooks(LayerHooks layerHooks) {
        hooks = layerHooks;
    }

    /// A request whose prefix grows; blocks are taken from the pool as it does.
    public final class Sequence {
        private final String id;
        private int[] tokens;
        private int[] blocks = new int[0];
        private int computed;
        private int changedFrom;

        private Sequence(String id, int[] prompt) {
            this.id = id;
            this.tokens = prompt.clone();
            grow();
        }

        private void grow() {
            int needed = Math.ceilDiv(tokens.length, BLOCK);
            int had = blocks.length;
            blocks = Arrays.copyOf(blocks, needed);
            for (int i = had; i < needed; i++) {
                blocks[i] = free.removeLast();
            }
        }

        public int length() {
            return tokens.length;
        }

        public void append(int token) {
            tokens = Arrays.copyOf(tokens, tokens.length + 1);
            tokens[tokens.length - 1] = token;
            grow();
        }

        /// The bytes of the first `count` tokens of a block, of all layers.
        public byte[][] export(int index, int count) {
            byte[][] out = new byte[regions.size()][];
            for (int l = 0; l < out.length; l++) {
                byte[] all = regions.get(l).block(blocks[index]).toArray(ValueLayout.JAVA_BYTE);
                out[l] = Arrays.copyOf(all, all.length / BLOCK * count);
            }
            return out;
        }

        /// One vector of the cache, where its layout says that it is.
        ///
        /// @param kv 0 for the key, 1 for the value
        public float[] vector(int layer, int position, int head, int kv) {
            var vector = new float[info.headDim()];
            int row =
                    info.layout() == KvLayout.LBHNC
                            ? head * BLOCK + position % BLOCK
                            : position % BLOCK * info.kvHeads() + head;
            var block = regions.get(layer).block(blocks[position / BLOCK]);
            MemorySegment.copy(
                    block,
                    F32,
                    (row * 2L + kv) * vector.length * Float.BYTES,
                    vector,
                    0,
                    vector.length);
            return vector;
        }

        public byte[][] export(int index) {
            return export(index, BLOCK);
        }

        /// Puts a whole block into the regions, as a load does. Blocks may come in any order.
        public void load(int index, byte[][] layers) {
            for (int l = 0; l < layers.length; l++) {
                load(index, l, layers[l]);
            }
        }

        /// Puts one layer of a block into its region, as a layer-wise load does.
        public void load(int index, int layer, byte[] bytes) {
            regions.get(layer).block(blocks[index]).copyFrom(MemorySegment.ofArray(bytes));
        }

        /// Says that the first `count` tokens came from elsewhere.
        public void loaded(int count) {
            computed = count;
        }

        /// Gives the blocks back and forgets what was computed, as preemption does.
        public void preempt() {
            end();
            blocks = new int[0];
            computed = 0;
            changedFrom = 0;
            grow();
        }

        /// Ends the request: its blocks return to the pool.
        public void end() {
            ended.add(id);
            for (int block : blocks) {
                free.addFirst(block);
            }
        }
    }

    public Sequence sequence(String id, int... prompt) {
        return new Sequence(id, prompt);
    }

    /// Hooks that load the first `count` blocks of `to` from `from`, each layer no sooner than
    /// asked for, note all calls in `calls`, and check that each layer's KV is there when it is
    /// said to be.
    public static LayerHooks layerwise(Sequence from, Sequence to, int count, List<String> calls) {
        return new LayerHooks() {
            @Override
            public void beforeLayer(int layer) {
                calls.add("before " + layer);
                for (int b = 0; b < count; b++) {
                    to.load(b, layer, from.export(b)[layer]);
                }
            }

            @Override
            public void afterLayer(int layer) {
                byte[] computed = to.export(count)[layer];
                calls.add(
                        "after "
                                + layer
                                + (Arrays.equals(computed, new byte[computed.length])
                                        ? " empty"
                                        : ""));
            }
        };
    }

    /// Computes `count` more tokens of a sequence; the logits (or the one-hot of the token that the
    /// runner chose) behind the last one.
    public float[] compute(Sequence sequence, int count) {
        return compute(List.of(sequence), List.of(count)).getFirst();
    }

    /// Computes what is left of the prompt, then `n` greedy tokens, one step each.
    public int[] generate(Sequence sequence, int n) {
        int[] out = new int[n];
        for (int i = 0; i < n; i++) {
            out[i] = largest(compute(sequence, sequence.length() - sequence.computed));
            sequence.append(out[i]);
        }
        return out;
    }

    /// One step over several sequences.
    public List<float[]> compute(List<Sequence> sequences, List<Integer> counts) {
        var items = new ArrayList<StepBatch.Item>();
        for (int i = 0; i < sequences.size(); i++) {
            items.add(new Item(sequences.get(i), counts.get(i)));
        }
        var found = new TreeMap<Integer, float[]>();
        runner.execute(new Batch(step++, items, List.copyOf(ended)), new Output(found), hooks);
        ended.clear();
        for (int i = 0; i < sequences.size(); i++) {
            Sequence sequence = sequences.get(i);
            sequence.computed += counts.get(i);
            sequence.changedFrom = sequence.computed;
        }
        return List.copyOf(found.values());
    }

    public static int largest(float[] logits) {
        int best = 0;
        for (int i = 1; i < logits.length; i++) {
            best = logits[i] > logits[best] ? i : best;
        }
        return best;
    }

    @Override
    public void close() {
        runner.close();
        arena.close();
    }

    private record Batch(long step, List<StepBatch.Item> items, List<String> ended)
            implements StepBatch {
        @Override
        public int size() {
            return items.size();
        }

        @Override
        public StepBatch.Item item(int index) {
            return items.get(index);
        }
    }

    private final class Output implements StepOutput {
        private final TreeMap<Integer, float[]> found;

        Output(TreeMap<Integer, float[]> found) {
            this.found = found;
        }

        @Override
        public void logits(int item, float[] logits) {
            found.put(item, logits.clone());
        }

        @Override
        public void token(int item, int token) {
            float[] oneHot = new float[info.vocabSize()];
            oneHot[token] = 1;
            found.put(item, oneHot);
        }
    }

    private record Item(Sequence of, int count) implements StepBatch.Item {
        @Override
        public String requestId() {
            return of.id;
        }

        @Override
        public int start() {
            return of.computed;
        }

        @Override
        public int token(int i) {
            return of.tokens[of.computed + i];
        }

        @Override
        public int tokenAt(int position) {
            return of.tokens[position];
        }

        @Override
        public int changedFrom() {
            return of.changedFrom;
        }

        @Override
        public BlockTable blocks() {
            return new BlockTable() {
                @Override
                public int groups() {
                    return 1;
                }

                @Override
                public int count(int group) {
                    return of.blocks.length;
                }

                @Override
                public int block(int group, int position) {
                    return of.blocks[position];
                }
            };
        }

        @Override
        public boolean sampled() {
            return true;
        }

        @Override
        public SamplingParams sampling() {
            return SamplingParams.greedy(1);
        }

        @Override
        public List<StepBatch.Embedding> embeddings() {
            return List.of();
        }
    }
}
