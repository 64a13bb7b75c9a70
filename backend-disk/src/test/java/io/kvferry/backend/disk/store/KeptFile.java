// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.RecordFormat;
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.PathText;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/// A hard link to a block file during a load, so that a file reported as damaged can be inspected
/// even though the reader deleted it.
final class KeptFile implements AutoCloseable {
    private final Path name;

    /// @param name outside the store
    KeptFile(Path file, Path name) throws IOException {
        this.name = name;
        try {
            Files.createLink(name, file);
        } catch (NoSuchFileException _) {
            // nothing to keep: the load misses, unless the file comes meanwhile
        }
    }

    /// What the file holds in place of the payload that it should, as the page cache has it and as
    /// the medium does.
    String describe(BlockKey key, List<MemorySegment> expected) throws IOException {
        if (!Files.exists(name)) {
            return "the file came after it could be kept";
        }
        byte[] cached = Files.readAllBytes(name);
        byte[] medium = medium(cached.length);
        byte[] payload = new byte[(int) RecordFormat.payloadBytes(expected)];
        long padded = AlignedStaging.align(payload.length);
        int header = (int) (RecordFormat.fileBytes(key, payload.length) - padded);
        int at = 0;
        for (var segment : expected) {
            int bytes = (int) segment.byteSize();
            MemorySegment.copy(segment, ValueLayout.JAVA_BYTE, 0, payload, at, bytes);
            at += bytes;
        }
        return "page cache: "
                + difference(cached, header, payload)
                + "; medium: "
                + (medium.length == 0 ? "not readable" : difference(medium, header, payload))
                + "; both the same: "
                + Arrays.equals(cached, medium);
    }

    private static String difference(byte[] file, int header, byte[] payload) {
        int first = -1;
        int last = -1;
        int count = 0;
        int zeros = 0;
        for (int i = 0; i < payload.length && header + i < file.length; i++) {
            if (file[header + i] != payload[i]) {
                first = first < 0 ? i : first;
                last = i;
                count++;
                zeros += file[header + i] == 0 ? 1 : 0;
            }
        }
        return "%d bytes, of whose payload %d are wrong, %d of them zero, between offsets %d and %d"
                .formatted(file.length, count, zeros, first, last);
    }

    /// The bytes past the page cache; none where that is not possible.
    private byte[] medium(int bytes) {
        var calls = FileCalls.ofPlatform();
        try (Arena arena = Arena.ofConfined()) {
            int handle = calls.openRead(PathText.of(arena, name), true);
            if (handle < 0) {
                return new byte[0];
            }
            long length = AlignedStaging.align(bytes + 1);
            var memory = arena.allocate(length, AlignedStaging.ALIGNMENT);
            long got = calls.read(handle, memory, 0, length, 0);
            calls.close(handle);
            return memory.asSlice(0, Math.max(0, got)).toArray(ValueLayout.JAVA_BYTE);
        }
    }

    @Override
    public void close() throws IOException {
        Files.deleteIfExists(name);
    }
}
