// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.tier.DiskObject;
import io.kvferry.toolkit.disk.NativeCrc;

import org.jspecify.annotations.Nullable;

import java.util.Objects;

/// What the embedded store keeps per key of a batch during a call.
///
/// Threading: as the batch.
final class BatchState {
    @Nullable StoredObject[] pinned = new StoredObject[16];
    long[] leases = new long[16];

    /// Copies on disk of those that have no memory.
    @Nullable DiskObject[] copies = new DiskObject[16];

    final NativeCrc crc = new NativeCrc();

    /// That of a batch, with room for its keys.
    static BatchState of(StoreBatch batch) {
        BatchState state = batch.attachment(BatchState.class, BatchState::new);
        state.makeRoom(batch.size());
        return state;
    }

    /// For so many keys; between calls only.
    void makeRoom(int size) {
        if (size > leases.length) {
            int room = Math.max(size, 2 * leases.length);
            pinned = new StoredObject[room];
            leases = new long[room];
            copies = new DiskObject[room];
        }
    }

    /// What was pinned for a key; it is forgotten here.
    StoredObject takePinned(int index) {
        StoredObject object = Objects.requireNonNull(pinned[index], "nothing is pinned");
        pinned[index] = null;
        return object;
    }
}
