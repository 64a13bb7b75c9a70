// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.embedding;

import io.kvferry.engine.model.LayerHooks;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.engine.model.StepBatch;
import io.kvferry.engine.model.StepOutput;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.memory.KvRegion;

import java.lang.foreign.ValueLayout;

/// A minimal model runner. Its "attention" is a hash chain: the 32 bytes of KV of a position are
/// computed from the token there and the KV of the previous position, which it reads from the
/// cache. So the KV depends on every byte of the prefix, as in a real model, and the runner can
/// check blocks that were loaded from elsewhere.
///
/// A real runner has matrix multiplications instead of [#row], and returns logits (`output.logits`)
/// instead of a token.
final class ChainRunner implements ModelRunner {
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;
    private static final int WORDS = 4; // K and V of one position: 4 * 8 bytes

    private final RunnerContext context;
    private final int blockTokens;

    ChainRunner(RunnerContext context) {
        this.context = context;
        this.blockTokens = context.cache().blockTokens();
    }

    @Override
    public void execute(StepBatch batch, StepOutput output, LayerHooks hooks) {
        for (var region : context.regions()) {
            hooks.beforeLayer(region.layerIndex()); // connectors finish loading this layer
            for (int i = 0; i < batch.size(); i++) {
                layer(i, batch.item(i), region, output);
            }
            hooks.afterLayer(region.layerIndex()); // and may begin to save it
        }
        for (int i = 0; i < batch.size(); i++) {
            var item = batch.item(i);
            if (item.sampled()) {
                long last =
                        word(context.regions().getLast(), item, item.start() + item.count() - 1, 0);
                output.token(i, 1 + (int) Long.remainderUnsigned(last, ChainModel.VOCABULARY - 1));
            }
        }
    }

    /// The positions of one request in one layer: those that are new here are checked, those of
    /// this step are written.
    private void layer(int index, StepBatch.Item item, KvRegion region, StepOutput output) {
        for (int position = item.changedFrom(); position < item.start(); position++) {
            long key = key(region, item, position);
            for (int word = 0; word < WORDS; word++) {
                if (word(region, item, position, word) != row(key, word)) {
                    output.failed(
                            index,
                            new Failure(
                                    ErrorCode.CORRUPT,
                                    "wrong KV of position " + position + " in " + region.layer()));
                    return;
                }
            }
        }
        for (int position = item.start(); position < item.start() + item.count(); position++) {
            long key = key(region, item, position);
            long at = address(region, item, position);
            for (int word = 0; word < WORDS; word++) {
                region.segment().set(LONG, at + 8L * word, row(key, word));
            }
        }
    }

    /// The KV of a token at a position in a layer. It depends on all earlier tokens through the KV
    /// of the previous position.
    private long key(KvRegion region, StepBatch.Item item, int position) {
        long before = position == 0 ? 0 : word(region, item, position - 1, 0);
        return before * 31 + item.tokenAt(position) * 7L + region.layerIndex();
    }

    private static long row(long key, int word) {
        long z = (key + word) * 0x9E3779B97F4A7C15L;
        return z ^ z >>> 29;
    }

    private long word(KvRegion region, StepBatch.Item item, int position, int word) {
        return region.segment().get(LONG, address(region, item, position) + 8L * word);
    }

    /// Where a position lies: its block, by the request's block table, and its row there.
    private long address(KvRegion region, StepBatch.Item item, int position) {
        int block = item.blocks().block(region.group(), position / blockTokens);
        return region.offset(block) + (position % blockTokens) * 8L * WORDS;
    }

    @Override
    public void close() {} // the engine owns the regions
}
