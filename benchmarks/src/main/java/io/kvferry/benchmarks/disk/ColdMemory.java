// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.benchmarks.CProgram;
import io.kvferry.benchmarks.Tool;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;

/// `files.c`: only the system calls, with as much memory as all files of a turn together, so that
/// none of it is in the CPU caches.
///
/// @param c compiled
record ColdMemory(CProgram c, Kind kind) implements FileLimit {
    static final String SOURCE = "files.c";

    /// What it does besides moving the bytes.
    enum Kind {
        /// The calls that a file needs at least.
        PLAIN("C", "write", "read"),
        /// And what no store leaves out that checks its bytes and names complete files only.
        CHECKED("C with checks", "put", "get"),
        /// With all calls of the store, which gathers and scatters.
        AS_STORE("C as the store", "save", "load");

        private final String title;
        private final String write;
        private final String read;

        Kind(String title, String write, String read) {
            this.title = title;
            this.write = write;
            this.read = read;
        }
    }

    @Override
    public String title() {
        return kind.title;
    }

    @Override
    public List<Path> homes(List<Path> folders) {
        return kind == Kind.PLAIN
                ? folders
                : List.of(folders.getFirst().resolve("../../limit-blocks").normalize());
    }

    @Override
    public Work run(Turn turn) throws IOException, InterruptedException {
        var words =
                Tool.run(
                                Duration.ofMinutes(5),
                                List.of(
                                        c.program().toString(),
                                        turn.write() ? kind.write : kind.read,
                                        turn.joined(),
                                        turn.name(),
                                        String.valueOf(turn.bytes()),
                                        String.valueOf(turn.files()),
                                        String.valueOf(turn.threads()),
                                        turn.direct() ? "1" : "0",
                                        String.valueOf(turn.shape().run()),
                                        String.valueOf(turn.shape().ranges()),
                                        turn.shape().scattered() ? "1" : "0",
                                        String.valueOf(turn.bytesPerCall())))
                        .strip()
                        .split(" ");
        return turn.took(Long.parseLong(words[0]) / 1e9, Long.parseLong(words[1]) / 1e3);
    }
}
