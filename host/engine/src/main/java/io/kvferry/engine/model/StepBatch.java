// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.BlockTable;

import java.util.List;

/// The work of one step on one rank. A live view, valid during [ModelRunner#execute].
public interface StepBatch {
    /// Number of the step.
    long step();

    int size();

    /// One request's part. The view may be reused for the next index: keep nothing of it.
    Item item(int index);

    /// Requests that ended or lost their blocks since the previous call: drop what is kept for
    /// them. A preempted request may come back under the same id, also in this very batch; drop
    /// first, then compute.
    List<String> ended();

    /// One request's part of a step.
    interface Item {
        /// Unique within the life of the engine.
        String requestId();

        /// Position of the first token to compute; the KV of all positions before it is in the
        /// regions. Goes back when a load turned out to have failed: what the runner computed from
        /// there on is void.
        int start();

        /// Tokens to compute, at least 1.
        int count();

        /// Id of the `i`-th of them (position `start + i`).
        int token(int i);

        /// Id of the token at any position, `0` to `start + count`.
        int tokenAt(int position);

        /// First position whose KV others (prefix cache, a load) put into the regions since this
        /// runner last computed for the request: positions `changedFrom` to `start` are new to it.
        /// Equals `start` when there are none, 0 in the first step of a request.
        int changedFrom();

        /// Blocks that hold positions `0` to `start + count`: position `p` is in block `p /
        /// blockTokens`.
        BlockTable blocks();

        /// Whether the token after the last one is wanted.
        boolean sampled();

        /// How many of this step's tokens, from the first one on, are to give the logits behind
        /// them ([StepOutput#promptLogits]); 0 unless the request wants log-probabilities of its
        /// prompt. The prompt's last token is not among them.
        default int promptLogits() {
            return 0;
        }

        SamplingParams sampling();

        /// Encoder outputs whose rows fall into this step's tokens, in order of position.
        List<Embedding> embeddings();
    }

    /// Rows of an encoder output replace the token embeddings of positions `position` to `position
    /// + rows`.
    record Embedding(int position, EncoderOutput output) {}
}
