// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/// Finds out whether a folder takes O_DIRECT by writing one page to it and reading it back.
final class DirectProbe {
    private DirectProbe() {}

    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] when direct I/O is demanded and the folder
    ///   does not take it
    static boolean direct(DirectIo wanted, StoreFolder folder, FileCalls calls) {
        if (wanted == DirectIo.OFF) {
            return false;
        }
        int rc = probe(folder, calls);
        if (rc < 0 && wanted == DirectIo.ON) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    folder.folder()
                            + " does not take O_DIRECT ("
                            + Errno.text(-rc)
                            + "); choose direct io 'auto' or 'off', or another file system");
        }
        return rc >= 0;
    }

    private static int probe(StoreFolder folder, FileCalls calls) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment page = arena.allocate(Staging.ALIGNMENT, Staging.ALIGNMENT);
            MemorySegment temp = folder.names(arena, -2).nextTemp();
            int handle = calls.createNew(temp, true);
            if (handle < 0) {
                return handle;
            }
            long rc = calls.write(handle, page, 0, page.byteSize(), 0);
            calls.close(handle);
            if (rc == page.byteSize()) {
                handle = calls.openRead(temp, true);
                rc = handle < 0 ? handle : calls.read(handle, page, 0, page.byteSize(), 0);
                if (handle >= 0) {
                    calls.close(handle);
                }
            }
            calls.unlink(temp);
            return rc < 0 ? (int) rc : 0;
        }
    }
}
