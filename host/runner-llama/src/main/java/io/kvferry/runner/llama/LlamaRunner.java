// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.engine.model.LayerHooks;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.StepBatch;
import io.kvferry.engine.model.StepOutput;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/// Runs steps straight on the engine's cache regions. It keeps nothing between steps, so ended and
/// preempted requests need no care.
///
/// Threading: the rank's step thread.
final class LlamaRunner implements ModelRunner {
    private final LlamaModel model;
    private final KvPages pages;

    LlamaRunner(LlamaModel model, KvPages pages) {
        this.model = model;
        this.pages = pages;
    }

    @Override
    public void execute(StepBatch batch, StepOutput output, LayerHooks hooks) {
        var chunks = new ArrayList<Chunk>(batch.size());
        for (int i = 0; i < batch.size(); i++) {
            chunks.add(chunk(batch.item(i)));
        }
        List<Optional<float[]>> logits = model.forward(chunks, pages, hooks, output::promptLogits);
        for (int i = 0; i < logits.size(); i++) {
            int item = i;
            logits.get(i).ifPresent(values -> output.logits(item, values));
        }
    }

    private Chunk chunk(StepBatch.Item item) {
        int[] tokens = new int[item.count()];
        for (int t = 0; t < tokens.length; t++) {
            tokens[t] = item.token(t);
        }
        int blocks = Math.ceilDiv(item.start() + tokens.length, pages.blockTokens());
        return new Chunk(
                tokens,
                item.start(),
                item.blocks().copy(0, 0, blocks),
                item.sampled(),
                item.promptLogits());
    }

    @Override
    public void close() {
        // the regions are the engine's, the weights the model's
    }
}
