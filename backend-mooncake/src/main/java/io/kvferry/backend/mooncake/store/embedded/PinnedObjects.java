// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.tier.DiskObject;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.backend.mooncake.store.tier.StagedRead;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/// Objects of one user that are leased and stay where they are, in memory or in what they were read
/// from disk into, whole and unchanged, until this is closed: for callers that move the bytes
/// themselves.
///
/// Threading: one thread at a time.
public final class PinnedObjects implements AutoCloseable {
    private final EmbeddedStore store;
    private final ObjectReads reads;
    private final BatchState state = new BatchState();
    private final long[] results;
    private final @Nullable StagedRead[] staged;

    PinnedObjects(EmbeddedStore store, ObjectReads reads, List<String> keys, int unavailable) {
        this.store = store;
        this.reads = reads;
        this.staged = new StagedRead[keys.size()];
        this.results = new long[keys.size()];
        state.makeRoom(keys.size());
        boolean done = false;
        try {
            for (int i = 0; i < results.length; i++) {
                int code = unavailable == 0 ? reads.pin(keys.get(i), state, i) : unavailable;
                results[i] = code == 0 ? object(i).size : code;
            }
            stage();
            done = true;
        } finally {
            if (!done) {
                close();
            }
        }
    }

    /// Reads from disk what has no memory, as much of it as there is staging memory for.
    private void stage() {
        DiskTier tier = store.tier;
        if (tier == null) {
            return;
        }
        var indexes = new ArrayList<Integer>();
        var copies = new ArrayList<DiskObject>();
        long room = tier.stagingBudget();
        for (int i = 0; i < results.length; i++) {
            DiskObject copy = results[i] > 0 ? state.copies[i] : null;
            if (copy != null) {
                room -= DiskTier.stagingBytes(copy.size());
                results[i] = room < 0 ? tier.noStaging() : results[i];
            }
            if (copy != null && room >= 0) {
                indexes.add(i);
                copies.add(copy);
            }
        }
        if (copies.isEmpty()) {
            return;
        }
        List<StagedRead> started = tier.readAll(copies);
        for (int i = 0; i < started.size(); i++) {
            staged[indexes.get(i)] = started.get(i);
        }
        for (int i : indexes) {
            StagedRead read = staged[i];
            int code =
                    read == null
                            ? tier.noStaging()
                            : DiskGets.finish(
                                    store.offloads, tier, object(i), state.copies[i], read);
            if (code != 0) {
                results[i] = code;
            } else if (read != null) {
                store.wasRead(object(i), read.value());
            }
        }
    }

    private StoredObject object(int index) {
        StoredObject object = state.pinned[index];
        if (object == null) {
            throw new IllegalStateException("key " + index + " is not pinned");
        }
        return object;
    }

    /// Per key the bytes of the object, or a code as of a read.
    public long result(int index) {
        return results[index];
    }

    /// Where an object that was found lies.
    public MemorySegment memory(int index) {
        StagedRead read = staged[index];
        if (read != null) {
            return read.value();
        }
        StoredObject object = object(index);
        return object.place().memory().asSlice(object.offset, object.size);
    }

    /// CRC32C of an object that was found, as its writer said.
    public int checksum(int index) {
        DiskObject copy = state.copies[index];
        return copy == null ? object(index).checksum : copy.checksum();
    }

    @Override
    public void close() {
        for (int i = 0; i < results.length; i++) {
            @Nullable StoredObject object = state.pinned[i];
            if (object != null) {
                state.pinned[i] = null;
                reads.unpin(object);
            }
        }
        for (int i = 0; i < results.length; i++) {
            StagedRead read = staged[i];
            if (read != null) {
                staged[i] = null;
                read.close();
            }
        }
    }
}
