// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.ec.EncoderOutput;

/// Computes the steps of one rank.
///
/// Threading: every method on the rank's step thread; the runner may use threads of its own inside
/// a call.
///
/// Errors: an exception out of [#execute] fails the requests of that step, and only them.
public interface ModelRunner extends AutoCloseable {
    /// Computes the tokens of a step. Before it reads the KV of a layer it calls
    /// [LayerHooks#beforeLayer], and [LayerHooks#afterLayer] when that layer's KV of this step is
    /// in the regions. On return:
    ///
    /// - the regions hold the KV of ALL tokens computed for each request so far, partial tail block
    ///   included: a runner whose own cache cannot be addressed copies positions `start` to `start
    ///   + count` out;
    /// - every item that is [StepBatch.Item#sampled] has a token or logits in `output`,
    /// - and where [StepBatch.Item#promptLogits] is not 0, those are there too; only asked of
    ///   runners whose model says [Model#scoresPrompts].
    ///
    /// A runner whose own cache cannot be addressed copies positions [StepBatch.Item#changedFrom]
    /// to `start` in from the regions first, and drops what it keeps for the requests in
    /// [StepBatch#ended].
    void execute(StepBatch batch, StepOutput output, LayerHooks hooks);

    /// Encodes one multimodal item into `target`. Only called when [ModelInfo#embeddingWidth] is
    /// positive.
    default void encode(EncoderInput item, EncoderOutput target) {
        throw new UnsupportedOperationException("this runner has no encoder");
    }

    @Override
    void close();
}
