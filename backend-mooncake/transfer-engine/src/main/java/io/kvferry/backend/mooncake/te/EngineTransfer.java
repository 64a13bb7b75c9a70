// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.util.concurrent.CompletionStage;

/// A transfer in flight.
///
/// Threading: any thread. Stages complete on engine threads; what depends on them must not block.
public interface EngineTransfer {
    /// Completes normally, once, with the outcome.
    CompletionStage<EngineOutcome> outcome();

    /// Completes normally when this transfer neither touches local memory nor changes the peer's
    /// any more; never before [#outcome]. Only then may buffers be reused.
    ///
    /// After a failed WRITE a kvferry peer is asked to confirm this, for at most 10 s. Other peers
    /// cannot be asked; they apply what was already sent within moments.
    CompletionStage<Void> quiesced();

    /// Requests an early end. The outcome reports what actually happened: a transfer that had
    /// completed before stays completed.
    void cancel();
}
