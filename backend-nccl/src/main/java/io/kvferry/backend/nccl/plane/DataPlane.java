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
/// The receiver opens a window and sends its grant over the side channel; the sender then fills the
/// whole window once. Nothing is written without an open window. Either side may give up at any
/// time.
///
/// Both calls take a callback for the end. It is called once, on a thread of the plane or of the
/// caller. From then on the plane neither writes the memory of the window, nor uses anything that
/// it reads from the memory of the sending.
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
        /// Closes the window. It ends with CANCELLED, unless everything has arrived already; after
        /// the end callback nothing is written any more.
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

        /// All blocks have their final contents and are valid. The receiver discards a sending
        /// without this.
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
