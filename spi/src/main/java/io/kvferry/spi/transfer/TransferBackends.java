// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.util.List;
import java.util.Map;

/// Opens transfer backends by name, several as one, so that a plugin need not know which ones
/// exist. A host service ([io.kvferry.spi.HostServices#transfers]) that finds, checks and drives
/// them.
///
/// The result is a [TransferBackend] like any other, CONCURRENT whatever its parts are:
///
/// - *Registration* goes to every part that takes this kind of memory.
/// - *Metadata* names the parts: a peer's is loaded by all parts that both have, or by none, so
///   that both sides need not list the same ones.
/// - *Each transfer* goes to the highest-ranked part that can do it. If that part refuses or fails
///   with a retryable code and the deadline permits, the next part is tried, after the first no
///   longer touches the buffers. Transfers beyond a part's limits are split.
/// - *Notifications* arrive once, however many parts were tried.
/// - *Decisions* are emitted as [io.kvferry.spi.observe.TraceEvent.Decision];
///   [TransferBackend#explain] predicts them.
///
/// Threading: any thread.
@FunctionalInterface
public interface TransferBackends {
    /// A host without transfer backends: every name is refused with UNAVAILABLE.
    TransferBackends NONE =
            (self, choices, ranking, sink) -> {
                throw new KvFerryException(
                        ErrorCode.UNAVAILABLE,
                        self
                                + " asks for transfer backends "
                                + choices.stream().map(Choice::name).toList()
                                + ", and this host opens none");
            };

    /// One backend to open.
    ///
    /// @param name of its provider
    /// @param options read strictly against the provider's schema
    record Choice(String name, Map<String, Object> options) {
        public Choice {
            options = Map.copyOf(options);
        }
    }

    /// Order of the parts that can do a transfer and did not fail recently.
    enum Ranking {
        /// The order in which they were listed.
        LISTED,
        /// The expected cost, corrected by what was measured; the order of listing among equals.
        CHEAPEST
    }

    /// Opens a backend made of those named; all of them or none.
    ///
    /// @param self the name by which peers know this opening, and its incarnation; one name is open
    ///   once at a time among agents that can meet
    /// @param choices at least one, each name once, best first; what is not listed is never used
    /// @param sink hears the notifications of all parts, and of a peer the best state that any part
    ///   is in with it
    /// @throws KvFerryException [ErrorCode#NOT_FOUND] for an unknown name, [ErrorCode#BAD_CONFIG],
    ///   [ErrorCode#UNAVAILABLE], or what a part threw
    TransferBackend open(
            PeerId self, List<Choice> choices, Ranking ranking, BackendContext.Sink sink);
}
