// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.plane.GrantProof;

/// The random numbers that the two ends of a link drew for it. A proof of a grant is made with
/// both: it is good on this link alone, and once, as a grant is used up.
///
/// Threading: immutable; any thread.
record LinkNonces(byte[] own, byte[] peers) {
    /// What this side shows as the sender.
    byte[] ofSender(GrantProof grant) {
        return grant.ofSender(own, peers);
    }

    /// What this side shows as the receiver.
    byte[] ofReceiver(GrantProof grant) {
        return grant.ofReceiver(peers, own);
    }

    /// Whether the peer, as the sender, knows the grant.
    boolean provesSender(GrantProof grant, byte[] shown) {
        return grant.isOfSender(shown, peers, own);
    }

    /// Whether the peer, as the receiver, knows the grant.
    boolean provesReceiver(GrantProof grant, byte[] shown) {
        return grant.isOfReceiver(shown, own, peers);
    }
}
