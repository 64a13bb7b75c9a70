// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.util.concurrent.CompletionStage;

/// A transfer in flight.
///
/// Threading: any thread. Stages complete on engine threads; what depends on them must not block.
public interface Transfer {
    /// Completes normally, once, with the outcome.
    CompletionStage<TransferOutcome> outcome();

    /// Completes normally when the engine no longer touches local memory for this transfer; never
    /// before [#outcome]. Only then may the local buffers be reused.
    CompletionStage<Void> quiesced();

    /// Asks to end it early. The outcome still tells what happened: a transfer that was done first
    /// stays completed.
    void cancel();
}
