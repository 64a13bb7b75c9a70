// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;

import java.util.Optional;

/// A resolved list. Nothing is held by it, so closing it only marks it.
///
/// @param owner the backend that resolved it; no other accepts it
/// @param knownPeer the peer as it was known then; empty for own memory
record MemoryPrepared(
        MemoryBackend owner, Optional<MemoryPeer> knownPeer, DescriptorList descriptors)
        implements Prepared {
    @Override
    public Optional<PeerId> peer() {
        return knownPeer.map(MemoryPeer::id);
    }

    @Override
    public void close() {
        // Nothing to free: transfers carry what they need.
    }
}
