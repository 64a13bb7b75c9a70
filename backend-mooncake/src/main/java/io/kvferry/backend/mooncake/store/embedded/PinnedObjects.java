// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.util.List;

/// Objects of one user that are leased and stay where they are, whole and unchanged, until this is
/// closed: for who moves their bytes by means of its own.
///
/// Threading: one thread at a time.
public final class PinnedObjects implements AutoCloseable {
    private final ObjectReads reads;
    private final BatchState state = new BatchState();
    private final long[] results;

    PinnedObjects(ObjectReads reads, List<String> keys, int unavailable) {
        this.reads = reads;
        this.results = new long[keys.size()];
        state.makeRoom(keys.size());
        boolean done = false;
        try {
            for (int i = 0; i < results.length; i++) {
                int code = unavailable == 0 ? reads.pin(keys.get(i), state, i) : unavailable;
                results[i] = code == 0 ? object(i).size : code;
            }
            done = true;
        } finally {
            if (!done) {
                close();
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
        StoredObject object = object(index);
        return object.place().memory().asSlice(object.offset, object.size);
    }

    /// CRC32C of an object that was found, as its writer said.
    public int checksum(int index) {
        return object(index).checksum;
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
    }
}
