// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;

import org.jspecify.annotations.Nullable;

import java.util.Optional;

/// A resolved descriptor list. A remote one keeps the ranges of its last pairing, so that posting
/// the same pair again costs nothing per descriptor.
final class MooncakePrepared implements Prepared {
    private record Pairing(DescriptorList local, Ranges ranges) {}

    private final MooncakeTransferBackend owner;
    private final Optional<MooncakePeer> knownPeer;
    private final DescriptorList descriptors;
    private volatile @Nullable Pairing last;

    MooncakePrepared(
            MooncakeTransferBackend owner,
            Optional<MooncakePeer> knownPeer,
            DescriptorList descriptors) {
        this.owner = owner;
        this.knownPeer = knownPeer;
        this.descriptors = descriptors;
    }

    MooncakeTransferBackend owner() {
        return owner;
    }

    Optional<MooncakePeer> knownPeer() {
        return knownPeer;
    }

    /// Both sides as the engine wants them; this list is the remote one. The result is shared and
    /// must not change.
    Ranges pairedWith(DescriptorList local) {
        Pairing seen = last;
        if (seen != null && seen.local == local) {
            return seen.ranges;
        }
        var ranges = new Ranges(local.count());
        for (int i = 0; i < local.count(); i++) {
            ranges.add(local.address(i), descriptors.address(i), local.length(i));
        }
        last = new Pairing(local, ranges);
        return ranges;
    }

    @Override
    public DescriptorList descriptors() {
        return descriptors;
    }

    @Override
    public Optional<PeerId> peer() {
        return knownPeer.map(MooncakePeer::id);
    }

    @Override
    public void close() {
        // Holds nothing but heap memory.
    }
}
