// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.prefill;

import io.kvferry.backend.mooncake.p2p.prefill.PrefillSlot.Ask;
import io.kvferry.backend.mooncake.p2p.wire.ReadReport;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.Failure;

import java.util.Optional;
import java.util.function.Consumer;

/// Carries the blocks of a request from a prefiller to its decoder.
///
/// Threading: the prefill loop.
interface Carrier {
    /// Why this prefiller cannot serve a decoder, whatever it asks for; empty when it can.
    Optional<String> refusal(XferMetadata message);

    /// Blocks will be moved to this decoder once a prefill that has begun is done. Returns at once.
    default void prepare(XferMetadata message) {}

    /// Starts to move the blocks of one request.
    ///
    /// @param ranges to move; not to be changed until the end
    /// @param ended called once on any thread, when nothing reads the blocks any more or whatever
    ///   still does is of no use to the reader; empty for success
    /// @return asks it to end early; may be called at any time, and again
    Runnable start(PrefillSlot slot, Ask ask, Ranges ranges, Consumer<Optional<Failure>> ended);

    /// The connection that an exchange came over has ended.
    default void gone(PrefillExchange exchange) {}

    /// A decoder says what became of an offer.
    ///
    /// @return why that cannot be
    default Optional<Failure> reported(ReadReport report) {
        return Optional.of(ReadOffers.unknown());
    }
}
