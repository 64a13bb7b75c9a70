// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.toolkit.bounded.Uninterrupted;
import io.kvferry.toolkit.memory.AvailableMemory;
import io.kvferry.toolkit.memory.HostPages;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.function.Function;
import java.util.function.Supplier;

/// Makes and deletes the files of an owner's regions.
///
/// Threading: any thread.
///
/// @param available memory of the host
/// @param pages maps the pages of a new region
record RegionFiles(
        SharedFolder folder,
        Supplier<AvailableMemory> available,
        Function<MemorySegment, HostPages.Mapped> pages) {
    private static final Logger LOG = LoggerFactory.getLogger(RegionFiles.class);

    /// Maps a new file as a whole. On failure the file is deleted. Not interruptible.
    MemorySegment create(Path path, long bytes, Arena arena) throws IOException {
        return Uninterrupted.files(() -> createOnce(path, bytes, arena));
    }

    private MemorySegment createOnce(Path path, long bytes, Arena arena) throws IOException {
        boolean done = false;
        try (FileChannel file = SharedFolder.create(path)) {
            MemorySegment memory = occupy(file, bytes, arena);
            done = true;
            return memory;
        } finally {
            if (!done) {
                discard(path);
            }
        }
    }

    /// The whole of a new file, mapped, with room for each of its pages: touching memory that the
    /// folder has no room for would kill the process later.
    ///
    /// @throws IOException when the folder has none
    private MemorySegment occupy(FileChannel file, long bytes, Arena arena) throws IOException {
        if (Files.getFileStore(folder.folder()).getUsableSpace() < bytes) {
            throw new IOException("no space left");
        }
        // The pages of a folder in memory are taken from the host or its control group.
        var memory = available.get();
        if (bytes > memory.bytes()) {
            throw new IOException(
                    "more than the " + memory.bytes() + " bytes of " + memory.bound());
        }
        MemorySegment mapped = file.map(FileChannel.MapMode.READ_WRITE, 0, bytes, arena);
        HostPages.adviseHuge(mapped); // before there are pages of another size
        switch (pages.apply(mapped)) {
            case ALL -> {}
            case NO_ROOM -> throw new IOException("no space left");
            case UNSUPPORTED -> SharedFolder.occupy(file, bytes);
        }
        return mapped;
    }

    /// Deletes a file that may be mapped. The mapping lives as long as its arena, and would keep
    /// the pages of a file that is only deleted.
    private static void discard(Path path) {
        try { // by name: an interrupt closes channels
            Files.newOutputStream(path, StandardOpenOption.TRUNCATE_EXISTING).close();
        } catch (IOException e) {
            LOG.debug("{} is not emptied: {}", path, e.toString());
        }
        delete(path);
    }

    static void delete(Path path) {
        try {
            Files.deleteIfExists(path);
        } catch (IOException e) {
            LOG.warn("{} stays behind: {}", path, e.toString());
        }
    }
}
