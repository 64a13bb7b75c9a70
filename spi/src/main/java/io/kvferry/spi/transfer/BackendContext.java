// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.TransferBackend.PeerState;

/// The agent's services for a backend.
///
/// @param self this agent in this life
/// @param sink where notifications and peer states go
/// @param events where decisions and incidents go
public record BackendContext(PeerId self, OptionValues options, Sink sink, EventSink events) {
    /// The agent's callbacks. Called from backend threads. Implementations return quickly, never
    /// throw, and never call the backend.
    public interface Sink {
        /// A notification arrived, after the data of the transfer that carried it, once.
        void notified(PeerId from, byte[] notification);

        /// The backend's view of a peer changed.
        void peerChanged(PeerId peer, PeerState state, String why);
    }
}
