// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.spi.Deadline;

import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletionStage;

/// A submitted request, as its client sees it.
///
/// Threading: any thread. Tokens wait here until they are read; there are at most
/// [io.kvferry.engine.model.SamplingParams#maxTokens] of them.
public interface RequestHandle {
    /// Unique within the life of the engine.
    String id();

    /// Waits for the next thing to happen: a token, or the end. Every call after the end answers
    /// the end again.
    ///
    /// @return empty when nothing happened before the deadline
    Optional<StreamEvent> next(Deadline limit);

    /// Log-probabilities of the prompt's tokens from the second one on (the first follows nothing),
    /// where the request wants them; complete once a token or a regular end has been read.
    default List<TokenLogprobs> promptLogprobs() {
        return List.of();
    }

    /// Completes normally, with the outcome, once; on the scheduler thread, so dependents must not
    /// block.
    CompletionStage<Outcome> outcome();

    /// Waits for the outcome; empty when there is none before the deadline.
    Optional<Outcome> await(Deadline limit);

    /// Asks the engine to stop; the outcome follows. No effect on an ended request.
    void abort();

    /// Releases what the request keeps for a consumer that will not come: aborts the request if it
    /// still runs, or revokes the KV connector's hold on its blocks if it has ended. No effect if
    /// nothing is held.
    void release();

    /// What a client reads from the stream.
    sealed interface StreamEvent {
        /// The `index`-th generated token, with log-probabilities where the request wants them.
        record Token(int index, int token, Optional<TokenLogprobs> logprobs)
                implements StreamEvent {}

        record Ended(Outcome outcome) implements StreamEvent {}
    }
}
