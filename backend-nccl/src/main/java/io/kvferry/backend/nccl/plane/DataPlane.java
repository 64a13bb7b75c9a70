// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;

/// Moves the bytes of transfers between the workers of two engines.
///
/// The receiver opens a window and tells the sender its grant over the side channel; the sender
/// then fills the window, all of it, once. Nothing is written where no window is open. Either side
/// may give up at any time.
///
/// Both calls name what is to be told at the end: it is told once, on a thread of the plane or of
/// the caller, and from then on the plane writes none of a window's memory, and uses nothing that
/// it reads of a sending's.
///
/// Threading: any thread; no method waits for a peer.
public interface DataPlane extends AutoCloseable {
    /// What it is, for logs and figures: `host`, `nccl`.
    String kind();

    /// Where senders reach it.
    String address();

    /// Whether nothing can be sent there for the time being, though the peer has such a plane.
    default boolean refuses(String peer) {
        return false;
    }

    /// Why it takes nothing for the time being, for the health of the engine; empty when it does.
    default Optional<String> trouble() {
        return Optional.empty();
    }

    /// Bytes of transfers that arrived since the last call, by the way that they took, where the
    /// plane has more than one: `tcp`, `copy` (by the kernel, from process to process).
    default Map<String, Long> takeReceived() {
        return Map.of();
    }

    /// Opens a window.
    ///
    /// @param deadline after which it closes by itself, with TIMEOUT
    Window receive(Grant grant, Placement target, Deadline deadline, Consumer<Outcome> end);

    /// Begins to send. What is not available yet ([Sending#available]) waits for it.
    ///
    /// @param address of the receiver's plane
    /// @param deadline after which it gives up by itself, with TIMEOUT
    Sending send(
            String address,
            Grant grant,
            Placement source,
            Deadline deadline,
            Consumer<Outcome> end);

    /// Ends everything with CLOSED, and waits (bounded) until no thread touches any memory.
    ///
    /// @throws io.kvferry.spi.KvFerryException [io.kvferry.spi.ErrorCode#TIMEOUT] when one still
    ///   does: the memory must stay in place. All else is closed.
    @Override
    void close();

    /// An open window.
    interface Window {
        /// Closes it: nothing is written any more once the end was told, with CANCELLED unless it
        /// was all there already.
        void withdraw();

        /// As [#withdraw], if no sender has come.
        void withdrawUnused();
    }

    /// A transfer that is being sent.
    interface Sending {
        /// The first `parts` parts hold what is to be sent; their blocks do not change any more.
        void available(int parts);

        /// Waits until the first `parts` parts were handed to the transport.
        ///
        /// @return false when it ended, or the deadline passed, before that
        boolean awaitSent(int parts, Deadline deadline);

        /// All of it holds what is to be sent, and is worth keeping. Without this the receiver
        /// takes none of it.
        void commit();

        /// Gives up, with CANCELLED.
        void abort();
    }

    /// How it ended.
    sealed interface Outcome {
        /// Every byte is in the window.
        record Done(long bytes) implements Outcome {}

        /// The window is not to be used.
        record Failed(Failure failure) implements Outcome {
            private static final Failed NOT_DESCRIBED =
                    new Failed(
                            new Failure(
                                    ErrorCode.NO_MEMORY,
                                    "no memory to describe why the transfer failed"));

            /// Where there is no memory for it, one that says so.
            public static Failed of(Throwable thrown) {
                try {
                    return new Failed(Failure.of(thrown));
                } catch (OutOfMemoryError _) {
                    return NOT_DESCRIBED;
                }
            }
        }
    }
}
