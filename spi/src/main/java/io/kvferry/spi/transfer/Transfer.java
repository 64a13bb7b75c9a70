// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletionStage;

/// A transfer in flight.
///
/// Threading: any thread, also for CONFINED backends. Stages complete on a backend thread (the
/// owner loop of a CONFINED one): callbacks must not block.
public interface Transfer {
    /// Always completes normally; a failure is an outcome, not an exception.
    CompletionStage<TransferOutcome> completion();

    /// Completes normally when no part of the transfer touches a buffer any more: not before
    /// [#completion], and possibly later (a cancelled write may still be in flight). Only then may
    /// the buffers be reused or freed.
    CompletionStage<Void> quiesced();

    /// The outcome if there is one; allocates nothing while there is none.
    Optional<TransferOutcome> poll();

    /// The names of the backends that were tried so far, the one in use last; empty for a backend
    /// that is not made of others.
    default List<String> attempts() {
        return List.of();
    }

    /// Asks to stop. True if the transfer will end as Cancelled, false if it ended already or
    /// cannot be stopped.
    boolean cancel();
}
