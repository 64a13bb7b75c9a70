// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.Failure;

/// Where a runner leaves what it computed. Only rank 0's tokens count; other ranks may skip it.
public interface StepOutput {
    /// Picks the item's next token from logits over the vocabulary, by the item's sampling params.
    /// Reads `logits` before it returns.
    void logits(int item, float[] logits);

    /// Logits behind the item's `token`-th token of this step, which is one of the prompt's; for
    /// each of [StepBatch.Item#promptLogits], in any order. Reads `logits` before it returns.
    default void promptLogits(int item, int token, float[] logits) {
        throw new UnsupportedOperationException("prompt logits were not requested");
    }

    /// The item's next token, for runners that sample themselves.
    void token(int item, int token);

    /// Reports that this item cannot be computed, while the others can. Its request fails, unless
    /// the connector reports that a load of it failed.
    default void failed(int item, Failure failure) {
        throw failure.toException();
    }
}
