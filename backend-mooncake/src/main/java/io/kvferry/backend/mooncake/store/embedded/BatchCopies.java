// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.toolkit.disk.NativeCrc;

import java.lang.foreign.MemorySegment;

/// Copies between the buffers of a batch and objects, and makes or checks their CRC32C on the way,
/// piece by piece while the bytes are in the processor's cache.
///
/// Threading: any thread.
final class BatchCopies {
    private static final long PIECE = 64 << 10;

    private final boolean checksums;

    BatchCopies(boolean checksums) {
        this.checksums = checksums;
    }

    /// CRC32C of native memory.
    static int checksum(MemorySegment memory) {
        var crc = new NativeCrc();
        for (long at = 0; at < memory.byteSize(); at += PIECE) {
            crc.update(memory.address() + at, Math.min(PIECE, memory.byteSize() - at));
        }
        return crc.value();
    }

    /// Gathers the buffers of a key into its object.
    ///
    /// @return the checksum, 0 without one
    int write(StoreBatch batch, int index, StoredObject object) {
        return move(batch, index, object, true);
    }

    /// Scatters an object into the buffers of its key.
    ///
    /// @return false when the bytes are not those that were put
    boolean read(StoreBatch batch, int index, StoredObject object) {
        int checksum = move(batch, index, object, false);
        return !checksums || checksum == object.checksum;
    }

    /// Scatters the bytes of an object, which have been checked already, into the buffers of its
    /// key.
    static void read(StoreBatch batch, int index, MemorySegment value) {
        long at = 0;
        for (int b = batch.first(index); b < batch.end(index) && at < value.byteSize(); b++) {
            long length = Math.min(batch.length(b), value.byteSize() - at);
            MemorySegment.copy(value, at, batch.memory(b), batch.offset(b), length);
            at += length;
        }
    }

    private int move(StoreBatch batch, int index, StoredObject object, boolean in) {
        NativeCrc crc = checksums ? BatchState.of(batch).crc : null;
        MemorySegment stored = object.place().memory();
        long at = object.offset;
        long end = object.offset + object.size;
        if (crc != null) {
            crc.reset();
        }
        for (int b = batch.first(index); b < batch.end(index) && at < end; b++) {
            MemorySegment user = batch.memory(b);
            long from = batch.offset(b);
            long length = Math.min(batch.length(b), end - at);
            while (length > 0) {
                long piece = crc == null ? length : Math.min(length, PIECE);
                if (in) {
                    MemorySegment.copy(user, from, stored, at, piece);
                } else {
                    MemorySegment.copy(stored, at, user, from, piece);
                }
                if (crc != null) {
                    crc.update(stored.address() + at, piece);
                }
                from += piece;
                at += piece;
                length -= piece;
            }
        }
        return crc == null ? 0 : crc.value();
    }
}
