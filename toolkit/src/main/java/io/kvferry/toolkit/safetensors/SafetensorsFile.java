// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.safetensors;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Map;

/// A mapped safetensors file: checked header, tensors as read-only views of the mapping.
///
/// A view starts where the file says, which is aligned only as well as its writer aligned it: read
/// it with unaligned, little-endian layouts. Files that are replaced by rename are safe to keep
/// open; one that is truncated in place under the mapping makes an access fail with
/// [InternalError], as every mapping does.
///
/// Threading: safe for any number of readers; [#close] must come after the last use of any view.
public final class SafetensorsFile implements AutoCloseable {
    /// Longest header that is read, as in the reference implementation.
    public static final long MAX_HEADER_BYTES = 100_000_000;

    private static final ValueLayout.OfLong LENGTH =
            ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

    private final Path path;
    private final Arena arena;
    private final MemorySegment data;
    private final HeaderParser.Header header;

    private SafetensorsFile(
            Path path, Arena arena, MemorySegment data, HeaderParser.Header header) {
        this.path = path;
        this.arena = arena;
        this.data = data;
        this.header = header;
    }

    /// Maps and checks `path`.
    ///
    /// @throws KvFerryException [ErrorCode#MISS] when there is no such file, [ErrorCode#STORAGE_IO]
    ///   when it cannot be read, [ErrorCode#CORRUPT] when it is not a whole safetensors file,
    ///   [ErrorCode#INCOMPATIBLE] when it uses a dtype that [TensorType] does not list
    public static SafetensorsFile open(Path path) {
        Arena arena = Arena.ofShared();
        boolean opened = false;
        try {
            // Opening a FIFO would wait for its writer.
            if (!Files.readAttributes(path, BasicFileAttributes.class).isRegularFile()) {
                throw corrupt(path, "is not a regular file");
            }
            var result = map(path, arena);
            opened = true;
            return result;
        } catch (NoSuchFileException e) {
            throw new KvFerryException(ErrorCode.MISS, "no safetensors file " + path, e);
        } catch (IOException e) {
            throw FileTrouble.exception("cannot read " + path, e);
        } finally {
            if (!opened) {
                arena.close();
            }
        }
    }

    private static SafetensorsFile map(Path path, Arena arena) throws IOException {
        try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ)) {
            MemorySegment file =
                    channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size(), arena);
            return of(path, arena, file);
        }
    }

    private static SafetensorsFile of(Path path, Arena arena, MemorySegment file) {
        if (file.byteSize() < Long.BYTES) {
            throw corrupt(path, "holds " + file.byteSize() + " bytes, a header length takes 8");
        }
        long length = file.get(LENGTH, 0);
        long rest = file.byteSize() - Long.BYTES;
        if (length < 2 || length > MAX_HEADER_BYTES) {
            throw corrupt(
                    path,
                    "header length "
                            + Long.toUnsignedString(length)
                            + " is outside 2.."
                            + MAX_HEADER_BYTES);
        }
        if (length > rest) {
            throw corrupt(
                    path,
                    "header length " + length + " exceeds the " + rest + " bytes that follow it");
        }
        var json = file.asSlice(Long.BYTES, length).asByteBuffer();
        MemorySegment data = file.asSlice(Long.BYTES + length);
        return new SafetensorsFile(
                path, arena, data, HeaderParser.parse(json, data.byteSize(), path.toString()));
    }

    /// The tensors by name, in the order of their bytes.
    public Map<String, TensorInfo> tensors() {
        return header.tensors();
    }

    /// The strings under `__metadata__`; empty when there are none.
    public Map<String, String> metadata() {
        return header.metadata();
    }

    /// The bytes of one tensor, valid until [#close].
    ///
    /// @throws KvFerryException [ErrorCode#MISS] when the file has no tensor of that name
    public MemorySegment segment(String name) {
        TensorInfo info = info(name);
        return data.asSlice(info.begin(), info.byteSize());
    }

    /// The header entry of one tensor.
    ///
    /// @throws KvFerryException [ErrorCode#MISS] when the file has no tensor of that name
    public TensorInfo info(String name) {
        TensorInfo info = header.tensors().get(name);
        if (info == null) {
            throw new KvFerryException(
                    ErrorCode.MISS,
                    path
                            + " has no tensor '"
                            + name
                            + "'; it has "
                            + header.tensors().size()
                            + " others");
        }
        return info;
    }

    /// Unmaps the file; views of it become unusable.
    @Override
    public void close() {
        arena.close();
    }

    private static KvFerryException corrupt(Path path, String what) {
        return new KvFerryException(ErrorCode.CORRUPT, path + ": " + what);
    }
}
