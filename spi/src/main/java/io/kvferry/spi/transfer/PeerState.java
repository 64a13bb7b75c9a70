// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

/// What an agent knows of a peer.
public enum PeerState {
    /// Metadata loaded, never spoken to.
    KNOWN,
    CONNECTING,
    READY,
    /// An operation failed in a way that a lost peer explains; new work is still accepted.
    SUSPECT,
    /// Gone for good in this incarnation; everything in flight to it has failed.
    LOST
}
