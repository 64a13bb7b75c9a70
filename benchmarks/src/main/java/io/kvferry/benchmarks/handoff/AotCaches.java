// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.benchmarks.Folders;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;

/// The AOT caches of a pair of engines: what a JVM learned in an earlier life, which are its
/// classes, linked, and the profiles by which methods are compiled (JEP 483, 514, 515). The first
/// pair writes them when it ends; later pairs start from them.
///
/// @param folder where they are; empty when engines start without
record AotCaches(Optional<Path> folder) implements AutoCloseable {
    private static final String PREFILL = "prefill.aot";
    private static final String DECODE = "decode.aot";

    static AotCaches of(boolean wanted) throws IOException {
        return new AotCaches(
                wanted ? Optional.of(Files.createTempDirectory("kvferry-aot")) : Optional.empty());
    }

    /// The JVM options of the engine that computes prompts.
    List<String> prefill() {
        return options(PREFILL);
    }

    /// The JVM options of the engine that generates.
    List<String> decode() {
        return options(DECODE);
    }

    /// Checks that the first pair has written them.
    void requireWritten() {
        if (folder.isEmpty()) {
            return;
        }
        for (var name : List.of(PREFILL, DECODE)) {
            if (!Files.exists(folder.get().resolve(name))) {
                throw new IllegalStateException("no AOT cache was written: " + name);
            }
        }
    }

    private List<String> options(String name) {
        if (folder.isEmpty()) {
            return List.of();
        }
        var file = folder.get().resolve(name);
        return Files.exists(file)
                ? List.of("-XX:AOTCache=" + file, "-XX:AOTMode=on") // no start without it
                : List.of("-XX:AOTCacheOutput=" + file);
    }

    @Override
    public void close() throws IOException {
        if (folder.isPresent()) {
            Folders.delete(folder.get());
        }
    }
}
