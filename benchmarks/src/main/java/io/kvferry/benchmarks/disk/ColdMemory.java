// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.benchmarks.CProgram;
import io.kvferry.benchmarks.Tool;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;

/// `files.c`: system calls alone, from and to as much memory as all files of a turn together, so
/// that none of it is in the processor's caches.
///
/// @param c compiled
record ColdMemory(CProgram c) implements FileLimit {
    static final String SOURCE = "files.c";

    @Override
    public String title() {
        return "C";
    }

    @Override
    public Work run(
            Path folder,
            String name,
            boolean write,
            long bytes,
            int files,
            int threads,
            boolean direct)
            throws IOException, InterruptedException {
        Files.createDirectories(folder);
        var words =
                Tool.run(
                                Duration.ofMinutes(5),
                                List.of(
                                        c.program().toString(),
                                        write ? "write" : "read",
                                        folder.toString(),
                                        name,
                                        String.valueOf(bytes),
                                        String.valueOf(files),
                                        String.valueOf(threads),
                                        direct ? "1" : "0"))
                        .strip()
                        .split(" ");
        double seconds = Long.parseLong(words[0]) / 1e9;
        double micros = Long.parseLong(words[1]) / 1e3;
        return new Work(bytes * files / seconds, micros / files, bytes * files);
    }
}
