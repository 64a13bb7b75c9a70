// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingOptions;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.kv.BlockTable;

import java.util.List;

/// One request's part of a step, as the scheduler planned it; the terms are those of
/// [io.kvferry.engine.model.StepBatch.Item]. Does not change while the step runs.
public interface PlannedItem {
    String requestId();

    int start();

    int count();

    int tokenAt(int position);

    int changedFrom();

    BlockTable blocks();

    boolean sampled();

    SamplingParams sampling();

    /// Whether its sampling has no options, so that a runner may choose tokens itself.
    default boolean isPlain() {
        return sampling().options().equals(SamplingOptions.NONE);
    }

    /// How many of the request's tokens, from the first on, are its prompt.
    int promptTokens();

    /// How many of the step's tokens, from the first one on, are followed by one of the prompt
    /// whose log-probability the request wants.
    default int promptLogits() {
        return sampling().options().scoresPrompt()
                ? Math.clamp(promptTokens() - 1 - start(), 0, count())
                : 0;
    }

    /// Multimodal items with placeholder tokens in this step.
    List<EncoderInput> inputs();
}
