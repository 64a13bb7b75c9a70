// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.benchmarks.Tool;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
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
    private static final int AT_ONCE = 4 << 20;

    /// Makes and mounts one below `base`, or says why not.
    ///
    /// @param cached whether what the loop device moves goes through the page cache of the file
    ///   system below, as is the default of the system, and not straight to its medium
    static LoopFileSystem mount(Path base, long bytes, boolean cached)
            throws IOException, InterruptedException {
        var real = base.toRealPath(); // as /proc/mounts has it
        var image = real.resolve("kvferry-loop.img");
        var folder = real.resolve("kvferry-loop");
        var mkfs = Tool.find("mkfs.ext4", "apt-get install e2fsprogs, to measure on a loop device");
        if (mkfs.isEmpty()) {
            return new LoopFileSystem(Optional.empty(), image);
        }
        try {
            if (isMounted(folder)) { // by a run that was killed
                unmount(folder);
            }
            fill(image, Math.max(LEAST_BYTES, bytes));
            Files.createDirectories(folder);
            Tool.run(
                    LIMIT,
                    List.of(
                            mkfs.get().toString(),
                            "-q",
                            "-F",
                            "-E",
                            "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
                            image.toString()));
            Tool.run(LIMIT, List.of("mount", "-o", "loop", image.toString(), folder.toString()));
            if (!cached) {
                Tool.run(LIMIT, List.of("losetup", "--direct-io=on", device(folder)));
            }
            var mounted = new LoopFileSystem(Optional.of(folder), image);
            Runtime.getRuntime().addShutdownHook(new Thread(mounted::closeQuietly));
            return mounted;
        } catch (IOException e) {
            System.out.println(
                    "SKIPPED loop: needs root, a loop device and, without --loop-cache, losetup and a file system that has direct I/O: "
                            + e.getMessage());
            new LoopFileSystem(Optional.of(folder), image).closeQuietly();
            return new LoopFileSystem(Optional.empty(), image);
        }
    }

    /// Written in full: the first write to a place of a sparse file would pay for the room that the
    /// file system below has to find for it.
    private static void fill(Path image, long bytes) throws IOException {
        var zeros = ByteBuffer.allocateDirect(AT_ONCE);
        try (var file =
                FileChannel.open(
                        image,
                        StandardOpenOption.CREATE,
                        StandardOpenOption.WRITE,
                        StandardOpenOption.TRUNCATE_EXISTING)) {
            while (file.position() < bytes) {
                file.write(zeros.clear());
            }
            file.force(false);
        }
    }

    private static boolean isMounted(Path folder) throws IOException {
        return !device(folder).isEmpty();
    }

    /// Which is mounted there; empty where none is.
    private static String device(Path folder) throws IOException {
        return Files.readAllLines(Path.of("/proc/mounts")).stream()
                .map(line -> line.split(" "))
                .filter(words -> words[1].replace("\\040", " ").equals(folder.toString()))
                .map(words -> words[0])
                .findFirst()
                .orElse("");
    }

    private static void unmount(Path folder) throws IOException, InterruptedException {
        Tool.run(LIMIT, List.of("umount", folder.toString()));
    }

    /// Of a run that is interrupted.
    private void closeQuietly() {
        try {
            close();
        } catch (IOException e) {
            System.err.println("umount and delete by hand: " + e.getMessage());
        }
    }

    @Override
    public synchronized void close() throws IOException {
        if (folder.isPresent() && isMounted(folder.get())) {
            try {
                unmount(folder.get());
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IOException("interrupted before " + folder.get() + " was unmounted", e);
            }
        }
        if (folder.isPresent()) {
            Files.deleteIfExists(folder.get());
        }
        Files.deleteIfExists(image);
    }
}
