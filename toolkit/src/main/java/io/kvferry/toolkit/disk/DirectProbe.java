// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/// Finds out whether a folder takes O_DIRECT by writing one page to it and reading it back.
public final class DirectProbe {
    private DirectProbe() {}

    /// @param temp a path in the folder that is not taken
    /// @return 0, also where the file system is full, because it has opened a file so; or the
    ///   negated [Errno] of the call that failed
    public static int probe(FileCalls calls, MemorySegment temp) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment page = arena.allocate(AlignedStaging.ALIGNMENT, AlignedStaging.ALIGNMENT);
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
            return rc < 0 && !Errno.isFull((int) -rc) ? (int) rc : 0;
        }
    }
}
