// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/// Free memory of a virtual machine that is backed by its host. A host reclaims memory that has
/// been free for a few seconds (free page reporting of the balloon device) and provides it again at
/// the first touch, which takes a millisecond or more per MiB. Without this step, a turn that
/// writes to the page cache would depend on how much memory was freed just before.
final class HostMemory {
    /// Little enough that a system with 16 GiB does not begin to write it to the medium
    /// (`dirty_background_ratio`, 10 %).
    private static final long MOST_BYTES = 1 << 30;

    private HostMemory() {}

    /// Writes a file of this size to the page cache and deletes it before writeback. The page cache
    /// then reuses these pages. Process memory would not do: it is allocated in other sizes, from
    /// other free lists of the kernel.
    ///
    /// @param folder of the file system that writes next
    /// @param call bytes of one call of that, since they decide in which sizes memory is taken
    static void take(Path folder, long bytes, int call) throws IOException {
        var zeros = ByteBuffer.allocateDirect(call);
        try (var file =
                FileChannel.open(
                        folder.resolve("host-memory"),
                        StandardOpenOption.CREATE_NEW,
                        StandardOpenOption.WRITE,
                        StandardOpenOption.DELETE_ON_CLOSE)) {
            for (long at = 0; at < Math.min(bytes, MOST_BYTES); at += call) {
                file.write(zeros.clear());
            }
        }
    }
}
