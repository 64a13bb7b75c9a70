// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.benchmarks.CProgram;
import io.kvferry.benchmarks.Tool;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;

/// `files.c`: system calls alone, from and to as much memory as all files of a turn together, so
/// that none of it is in the processor's caches.
///
/// @param c compiled
/// @param likeStore with the calls of the store instead of those that a file needs at least
record ColdMemory(CProgram c, boolean likeStore) implements FileLimit {
    static final String SOURCE = "files.c";

    @Override
    public String title() {
        return likeStore ? "C as the store" : "C";
    }

    @Override
    public List<Path> homes(List<Path> folders) {
        return likeStore
                ? List.of(folders.getFirst().resolve("../../limit-blocks").normalize())
                : folders;
    }

    @Override
    public Work run(Turn turn) throws IOException, InterruptedException {
        var words =
                Tool.run(
                                Duration.ofMinutes(5),
                                List.of(
                                        c.program().toString(),
                                        work(turn.write()),
                                        turn.joined(),
                                        turn.name(),
                                        String.valueOf(turn.bytes()),
                                        String.valueOf(turn.files()),
                                        String.valueOf(turn.threads()),
                                        turn.direct() ? "1" : "0",
                                        String.valueOf(turn.blocks()),
                                        String.valueOf(turn.bytesPerCall())))
                        .strip()
                        .split(" ");
        return turn.took(Long.parseLong(words[0]) / 1e9, Long.parseLong(words[1]) / 1e3);
    }

    private String work(boolean write) {
        if (likeStore) {
            return write ? "save" : "load";
        }
        return write ? "write" : "read";
    }
}
