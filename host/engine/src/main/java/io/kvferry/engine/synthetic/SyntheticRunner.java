// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.synthetic;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.LayerHooks;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.engine.model.StepBatch;
import io.kvferry.engine.model.StepOutput;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// One rank of the synthetic model. The KV of a position is a function of (token prefix, layer, K
/// or V, head), so a block of a wrong prefix, layer, head or position is found at its first byte.
final class SyntheticRunner implements ModelRunner {
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;
    private static final Prefix NONE = new Prefix();

    private final SyntheticModel model;
    private final RunnerContext context;
    private final int blockTokens;
    private final int heads;
    private final int firstHead;
    private final int headBytes;

    /// From one token to the next, and from one head to the next.
    private final long tokenBytes;

    private final long pairBytes;
    private final boolean fill;
    private final boolean verifyLoaded;
    private final boolean verifyAll;
    private final long stepNanos;
    private final long tokenNanos;
    private final long rowNanos;
    private final Map<String, Prefix> prefixes = new HashMap<>();
    private Prefix[] batchPrefixes = new Prefix[16];
    private boolean[] wrong = new boolean[16];

    /// The states after each token of a request, as far as they are known.
    private static final class Prefix {
        private long[] states = new long[64];
        private int known;

        /// Makes the states of `tokens` positions known; those from `from` on may have changed.
        void extend(SyntheticModel model, StepBatch.Item item, int tokens) {
            if (states.length <= tokens) {
                states = Arrays.copyOf(states, Math.max(tokens + 1, 2 * states.length));
            }
            states[0] = model.seed();
            for (int i = known; i < tokens; i++) {
                states[i + 1] = SyntheticModel.next(states[i], item.tokenAt(i));
            }
            known = Math.max(known, tokens);
        }

        /// The state that includes the token at a position.
        long at(int position) {
            return states[position + 1];
        }
    }

    SyntheticRunner(SyntheticModel model, RunnerContext context) {
        this.model = model;
        this.context = context;
        var options = model.options();
        blockTokens = context.cache().blockTokens();
        var info = model.info();
        heads = info.kvHeads() / context.rank().tpSize();
        firstHead = heads * context.rank().tpRank();
        headBytes = info.headDim() * info.dtype().bytes();
        boolean headMajor = context.cache().has(KvLayout.LBHNC); // the engine chose, not the model
        tokenBytes = 2L * headBytes * (headMajor ? 1 : heads);
        pairBytes = 2L * headBytes * (headMajor ? blockTokens : 1);
        fill = options.string("fill").equals("yes");
        verifyAll = fill && options.string("verify").equals("all");
        verifyLoaded = fill && options.string("verify").equals("loaded");
        stepNanos = options.duration("step_time").toNanos();
        tokenNanos = options.duration("token_time").toNanos();
        rowNanos = options.duration("encode_time").toNanos();
    }

    @Override
    public void execute(StepBatch batch, StepOutput output, LayerHooks hooks) {
        long begin = System.nanoTime();
        batch.ended().forEach(prefixes::remove);
        long tokens = prepare(batch, output);
        var regions = context.regions();
        for (int layer = 0; layer < regions.size(); layer++) {
            hooks.beforeLayer(layer);
            if (fill) {
                computeLayer(batch, output, regions.get(layer));
            }
            hooks.afterLayer(layer);
        }
        for (int i = 0; i < batch.size(); i++) {
            var item = batch.item(i);
            if (item.sampled()) {
                output.token(
                        i, model.tokenAfter(batchPrefixes[i].at(item.start() + item.count() - 1)));
            }
        }
        Arrays.fill(batchPrefixes, 0, batch.size(), NONE);
        spend(begin, stepNanos + tokens * tokenNanos);
    }

    private long prepare(StepBatch batch, StepOutput output) {
        if (batchPrefixes.length < batch.size()) {
            batchPrefixes = new Prefix[2 * batch.size()];
            wrong = new boolean[2 * batch.size()];
        }
        Arrays.fill(wrong, 0, batch.size(), false);
        long tokens = 0;
        for (int i = 0; i < batch.size(); i++) {
            var item = batch.item(i);
            var prefix = prefixes.get(item.requestId());
            if (prefix == null) {
                prefix = new Prefix();
                prefixes.put(item.requestId(), prefix);
            }
            prefix.extend(model, item, item.start() + item.count());
            batchPrefixes[i] = prefix;
            for (var embedding : item.embeddings()) {
                if (!isWhole(embedding.output())) {
                    output.failed(
                            i,
                            new Failure(
                                    ErrorCode.CORRUPT,
                                    "wrong encoder output at position "
                                            + embedding.position()
                                            + " of request "
                                            + item.requestId()));
                }
            }
            tokens += item.count();
        }
        return tokens;
    }

    private void computeLayer(StepBatch batch, StepOutput output, KvRegion region) {
        var memory = region.segment();
        for (int i = 0; i < batch.size(); i++) {
            var item = batch.item(i);
            int from = verifyAll ? 0 : verifyLoaded ? item.changedFrom() : item.start();
            for (int position = from; position < item.start() && !wrong[i]; position++) {
                if (!row(memory, region, item, batchPrefixes[i], position, false)) {
                    wrong[i] = true;
                    output.failed(i, mismatch(region, item, position));
                }
            }
            for (int position = item.start(); position < item.start() + item.count(); position++) {
                row(memory, region, item, batchPrefixes[i], position, true);
            }
        }
    }

    private Failure mismatch(KvRegion region, StepBatch.Item item, int position) {
        return new Failure(
                ErrorCode.CORRUPT,
                "wrong KV in "
                        + region.layer()
                        + " on rank "
                        + context.rank().rank()
                        + ": request "
                        + item.requestId()
                        + ", position "
                        + position
                        + ", block "
                        + item.blocks().block(region.group(), position / blockTokens));
    }

    /// Writes or checks K and V of one position.
    private boolean row(
            MemorySegment memory,
            KvRegion region,
            StepBatch.Item item,
            Prefix prefix,
            int position,
            boolean write) {
        int block = item.blocks().block(region.group(), position / blockTokens);
        long base = region.offset(block) + position % blockTokens * tokenBytes;
        for (int kv = 0; kv < 2; kv++) {
            for (int head = 0; head < heads; head++) {
                long state =
                        prefix.at(position)
                                ^ ((region.layerIndex() * 2L + kv) << 32)
                                ^ (firstHead + head);
                if (!bytes(memory, base + head * pairBytes + (long) kv * headBytes, state, write)) {
                    return false;
                }
            }
        }
        return true;
    }

    private boolean bytes(MemorySegment memory, long at, long state, boolean write) {
        long word = SyntheticModel.mix(state);
        int i = 0;
        for (; i + 8 <= headBytes; i += 8, word += 0x9E3779B97F4A7C15L) {
            if (write) {
                memory.set(LONG, at + i, word);
            } else if (memory.get(LONG, at + i) != word) {
                return false;
            }
        }
        for (; i < headBytes; i++, word >>>= 8) {
            if (write) {
                memory.set(ValueLayout.JAVA_BYTE, at + i, (byte) word);
            } else if (memory.get(ValueLayout.JAVA_BYTE, at + i) != (byte) word) {
                return false;
            }
        }
        return true;
    }

    @Override
    public void encode(EncoderInput item, EncoderOutput target) {
        long begin = System.nanoTime();
        long state = model.seed();
        for (byte b : item.content()) {
            state = SyntheticModel.next(state, b);
        }
        embedding(target.data(), state, true);
        spend(begin, rowNanos * item.embeddings());
    }

    /// Writes or checks an encoder output: 8 bytes that stand for the content, and what follows
    /// from them.
    private static boolean embedding(MemorySegment data, long state, boolean write) {
        for (long at = 0; at < data.byteSize(); at++) {
            byte expected = (byte) (at < 8 ? state >>> (8 * at) : SyntheticModel.mix(state + at));
            if (write) {
                data.set(ValueLayout.JAVA_BYTE, at, expected);
            } else if (data.get(ValueLayout.JAVA_BYTE, at) != expected) {
                return false;
            }
        }
        return true;
    }

    private static boolean isWhole(EncoderOutput output) {
        return output.data().byteSize() < 8
                || embedding(output.data(), output.data().get(LONG, 0), false);
    }

    /// Takes the time the cost model says.
    private static void spend(long begin, long nanos) {
        for (long left = nanos; left > 0; left = nanos - (System.nanoTime() - begin)) {
            LockSupport.parkNanos(left);
        }
    }

    @Override
    public void close() {
        prefixes.clear();
    }
}
