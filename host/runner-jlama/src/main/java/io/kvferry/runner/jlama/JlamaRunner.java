// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.jlama;

import com.github.tjake.jlama.model.AbstractModel;
import com.github.tjake.jlama.tensor.AbstractTensor;
import com.github.tjake.jlama.tensor.KvBufferCache;

import io.kvferry.engine.model.LayerHooks;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.engine.model.StepBatch;
import io.kvferry.engine.model.StepOutput;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.locks.Lock;

/// Runs steps on Jlama, one request after the other: what others put into the regions is copied
/// into the request's buffer, the step's tokens are computed, and their KV is copied out.
///
/// Threading: the rank's step thread; holds the model's lock during a step.
final class JlamaRunner implements ModelRunner {
    private static final ValueLayout.OfFloat F32 =
            ValueLayout.JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

    /// What Jlama computes at once. It cuts longer calls itself, but then loses a buffer for each
    /// part.
    private static final int MOST_TOKENS = 256;

    private final AbstractModel model;
    private final Lock lock;
    private final JlamaFolder folder;
    private final KvRegions regions;
    private final KvBufferCache buffers;
    private final Map<String, KvBufferCache.KvBuffer> bufferOf = new HashMap<>();

    JlamaRunner(AbstractModel model, Lock lock, JlamaFolder folder, RunnerContext context) {
        this.model = model;
        this.lock = lock;
        this.folder = folder;
        this.regions =
                new KvRegions(
                        context.regions(), context.cache(), folder.kvHeads(), folder.headDim());
        this.buffers = new KvBufferCache(model);
    }

    @Override
    public void execute(StepBatch batch, StepOutput output, LayerHooks hooks) {
        lock.lock();
        try {
            batch.ended().forEach(this::drop);
            for (int l = 0; l < folder.layers(); l++) {
                hooks.beforeLayer(l);
            }
            for (int i = 0; i < batch.size(); i++) {
                compute(batch.item(i), i, output);
            }
            for (int l = 0; l < folder.layers(); l++) {
                hooks.afterLayer(l);
            }
        } finally {
            lock.unlock();
        }
    }

    private void compute(StepBatch.Item item, int index, StepOutput output) {
        check(item);
        KvBufferCache.KvBuffer buffer =
                bufferOf.computeIfAbsent(item.requestId(), _ -> buffers.getEphemeralKvBuffer());
        int start = item.start();
        int end = start + item.count();
        regions.load(item.blocks(), buffer, item.changedFrom(), start);
        for (int from = start; from < end; from += MOST_TOKENS) {
            int[] tokens = new int[Math.min(MOST_TOKENS, end - from)];
            for (int t = 0; t < tokens.length; t++) {
                tokens[t] = item.token(from - start + t);
            }
            boolean last = from + tokens.length == end;
            try (AbstractTensor<?, ?> hidden = model.batchForward(tokens, from, buffer)) {
                int scored = Math.min(tokens.length, start + item.promptLogits() - from);
                for (int t = 0; t < scored; t++) {
                    output.promptLogits(index, from - start + t, logits(hidden.slice(t)));
                }
                if (last && item.sampled()) {
                    output.logits(index, logits(hidden.slice(tokens.length - 1)));
                }
            }
        }
        buffer.setCurrentContextPosition(end);
        regions.save(item.blocks(), buffer, start, end);
    }

    /// Jlama reads past its tables instead of refusing.
    private void check(StepBatch.Item item) {
        int context = folder.context() - 2 * (folder.kvHeads() - 1);
        if (item.start() + item.count() > context) {
            throw new IllegalArgumentException(
                    "position "
                            + (item.start() + item.count() - 1)
                            + " is outside the usable context of "
                            + context);
        }
        for (int t = 0; t < item.count(); t++) {
            if (item.token(t) < 0 || item.token(t) >= folder.vocabulary()) {
                throw new IllegalArgumentException(
                        "token "
                                + item.token(t)
                                + " is outside the vocabulary of "
                                + folder.vocabulary());
            }
        }
    }

    private float[] logits(AbstractTensor<?, ?> hidden) {
        float[] out = new float[folder.vocabulary()];
        try (AbstractTensor<?, ?> logits = model.makeDenseTensor(folder.vocabulary())) {
            model.sample(hidden, 0f, 0f, logits);
            MemorySegment.copy(logits.getMemorySegment(), F32, 0, out, 0, out.length);
        }
        return out;
    }

    /// Gives the buffer's pages back to Jlama, which zeroes and reuses them: nothing may be read
    /// from it afterwards.
    private void drop(String requestId) {
        Optional.ofNullable(bufferOf.remove(requestId)).ifPresent(KvBufferCache.KvBuffer::close);
    }

    @Override
    public void close() {
        lock.lock();
        try {
            bufferOf.values().forEach(KvBufferCache.KvBuffer::close);
            bufferOf.clear();
        } finally {
            lock.unlock();
        }
    }
}
