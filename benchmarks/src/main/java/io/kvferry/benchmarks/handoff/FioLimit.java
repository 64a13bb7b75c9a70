// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.disk.Fio;

import java.nio.file.Path;

/// What a hand-off through a folder cannot beat: the same bytes written to files and read back from
/// the page cache, each file by one of two threads, one after the other.
///
/// @param folder absent before and after each measurement
record FioLimit(Fio fio, Path folder) implements Limit {
    private static final int FILE_BYTES = 4 << 20;
    private static final int THREADS = 2;

    /// Nanoseconds for so many bytes.
    @Override
    public long nanos(long bytes) throws Exception {
        int files = (int) Math.max(THREADS, bytes / FILE_BYTES);
        try {
            double seconds = 0;
            for (boolean write : new boolean[] {true, false}) {
                var result = fio.run(folder, write, FILE_BYTES, files, THREADS, false);
                seconds += bytes / result.rate();
            }
            return Math.round(seconds * 1e9);
        } finally {
            Folders.delete(folder);
        }
    }
}
