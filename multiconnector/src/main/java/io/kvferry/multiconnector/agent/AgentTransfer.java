// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.transfer.TransferOutcome;

import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletionStage;

/// A transfer that an agent has accepted. Like [io.kvferry.spi.transfer.Transfer], over however
/// many backends it took.
///
/// Threading: any thread. Stages complete on a backend thread: callbacks must not block.
public interface AgentTransfer {
    /// Why it went the way it went, as of the moment it was submitted.
    TransferPlan plan();

    /// The backends that were tried so far, the one in use last.
    List<String> attempts();

    /// Always completes, and always normally.
    CompletionStage<TransferOutcome> completion();

    /// Completes, normally, when no backend touches a buffer any more.
    CompletionStage<Void> quiesced();

    /// The outcome if there is one.
    Optional<TransferOutcome> poll();

    /// Asks to stop, and not to try another backend. False if it has ended or cannot be stopped.
    boolean cancel();
}
