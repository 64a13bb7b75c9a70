// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.PeerState;

import java.util.Map;

/// What an agent knows of a peer.
///
/// @param state the best state that any backend is in with it
/// @param byBackend every backend that both have
/// @param why what the last change was put down to
public record PeerStatus(PeerId id, PeerState state, Map<String, PeerState> byBackend, String why) {
    public PeerStatus {
        byBackend = Map.copyOf(byBackend);
    }
}
