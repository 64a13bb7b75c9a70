// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.LoadAssignment;

import java.util.Optional;

/// What the scheduler half knows of a request until it is finished.
final class TrackedRequest {
    final BlockPresence presence;
    Optional<LoadAssignment> loading = Optional.empty();
    boolean loadFailed;

    /// Blocks from the front that are stored, or for which a save is under way.
    int savedBlocks;

    /// Before this no further save is tried: the last one failed.
    Optional<Deadline> pause = Optional.empty();

    /// Save jobs so far, which number their transfers.
    int jobs;

    TrackedRequest(BlockPresence presence) {
        this.presence = presence;
    }
}
