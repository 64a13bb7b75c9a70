// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.disk.FileLimit;
import io.kvferry.benchmarks.disk.Fio;
import io.kvferry.benchmarks.disk.Shape;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/// Lower bound for a hand-off through a folder: the same bytes written to files and read back from
/// the page cache, each file by one thread, one after the other.
///
/// @param folder absent before and after each measurement
/// @param fileBytes of one file, as the connector makes them
/// @param threads that write, and then read
record FioLimit(Fio fio, Path folder, int fileBytes, int threads) implements Limit {
    @Override
    public Cost of(long bytes) throws Exception {
        int files = (int) Math.max(threads, bytes / fileBytes);
        try {
            double seconds = 0;
            double cpuMicros = 0;
            Files.createDirectories(folder);
            for (boolean write : new boolean[] {true, false}) {
                var result =
                        fio.run(
                                new FileLimit.Turn(
                                        List.of(folder),
                                        "kv",
                                        write,
                                        Shape.ofFile(fileBytes),
                                        files,
                                        threads,
                                        false));
                seconds += bytes / result.rate();
                cpuMicros += result.cpuMicros() * bytes / fileBytes;
            }
            return new Cost(Math.round(seconds * 1e9), Math.round(cpuMicros * 1e3));
        } finally {
            Folders.delete(folder);
        }
    }
}
