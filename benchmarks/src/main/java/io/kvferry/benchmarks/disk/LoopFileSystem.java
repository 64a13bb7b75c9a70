// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.benchmarks.Tool;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/// A fresh ext4 with a journal in a file, mounted through a loop device for the time of a run.
///
/// @param folder its root; empty where this user cannot mount
/// @param image the file
record LoopFileSystem(Optional<Path> folder, Path image) implements AutoCloseable {
    private static final Duration LIMIT = Duration.ofMinutes(1);
    private static final long LEAST_BYTES = 1L << 30;

    /// Makes and mounts one below `base`, or says why not.
    static LoopFileSystem mount(Path base, long bytes) throws IOException, InterruptedException {
        var image = base.resolve("kvferry-loop.img").toAbsolutePath();
        var folder = base.resolve("kvferry-loop").toAbsolutePath();
        var mkfs = Tool.find("mkfs.ext4", "apt-get install e2fsprogs, to measure on a loop device");
        if (mkfs.isEmpty()) {
            return new LoopFileSystem(Optional.empty(), image);
        }
        try (var file = new RandomAccessFile(image.toFile(), "rw")) {
            file.setLength(Math.max(LEAST_BYTES, bytes));
        }
        Files.createDirectories(folder);
        try {
            Tool.run(
                    LIMIT,
                    List.of(
                            mkfs.get().toString(),
                            "-q",
                            "-F",
                            "-E",
                            "lazy_itable_init=0,lazy_journal_init=0",
                            image.toString()));
            Tool.run(LIMIT, List.of("mount", "-o", "loop", image.toString(), folder.toString()));
            return new LoopFileSystem(Optional.of(folder), image);
        } catch (IOException e) {
            System.out.println("SKIPPED loop: needs root and a loop device: " + e.getMessage());
            Files.deleteIfExists(image);
            Files.deleteIfExists(folder);
            return new LoopFileSystem(Optional.empty(), image);
        }
    }

    @Override
    public void close() throws IOException {
        if (folder.isPresent()) {
            try {
                Tool.run(LIMIT, List.of("umount", folder.get().toString()));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IOException("interrupted before " + folder.get() + " was unmounted", e);
            }
            Files.delete(folder.get());
        }
        Files.deleteIfExists(image);
    }
}
