// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.util.concurrent.CompletionStage;

/// A transfer in flight.
///
/// Threading: any thread. Stages complete on engine threads; what depends on them must not block.
public interface EngineTransfer {
    /// Completes normally, once, with the outcome.
    CompletionStage<EngineOutcome> outcome();

    /// Completes normally when nothing of this transfer touches local memory any more, nor changes
    /// the peer's; never before [#outcome]. Only then may buffers be reused.
    ///
    /// Of a WRITE that failed a kvferry peer is asked, for 10 s at most, to say so. Other peers
    /// cannot be asked; what has left for them they apply within moments.
    CompletionStage<Void> quiesced();

    /// Asks to end it early. The outcome still tells what happened: a transfer that was done first
    /// stays completed.
    void cancel();
}
