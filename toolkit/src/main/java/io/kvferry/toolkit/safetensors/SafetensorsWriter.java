// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.safetensors;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import tools.jackson.core.JsonGenerator;
import tools.jackson.core.ObjectWriteContext;
import tools.jackson.core.json.JsonFactory;

import java.io.IOException;
import java.io.StringWriter;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.channels.WritableByteChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/// Writes safetensors files whose bytes depend on nothing but the tensors and the metadata given.
///
/// Tensors are laid out widest element first, then by name, and the header is padded to 8 bytes, so
/// that every tensor of such a file is aligned to its element.
///
/// Threading: static and stateless; two writers of one path both succeed, and the last rename
/// stays.
public final class SafetensorsWriter {
    private static final JsonFactory JSON = new JsonFactory();

    /// A channel write wants a ByteBuffer, which cannot wrap more than 2 GiB.
    private static final long MAX_WRITE_BYTES = 1L << 30;

    private SafetensorsWriter() {}

    /// One tensor to write; `data` holds its elements in little-endian order, outermost dimension
    /// first, and must not change until the write returned.
    public record Tensor(String name, TensorType type, List<Long> shape, MemorySegment data) {
        public Tensor {
            shape = List.copyOf(shape);
            long needed;
            try {
                needed = TensorInfo.byteSize(type, shape);
            } catch (ArithmeticException e) {
                throw new IllegalArgumentException(
                        "tensor '" + name + "': shape " + shape + " overflows", e);
            }
            if (needed != data.byteSize()) {
                throw new IllegalArgumentException(
                        "tensor '"
                                + name
                                + "': "
                                + type
                                + " of shape "
                                + shape
                                + " takes "
                                + needed
                                + " bytes, data has "
                                + data.byteSize());
            }
            if (HeaderParser.METADATA.equals(name)) {
                throw new IllegalArgumentException("tensor name '" + name + "' is reserved");
            }
        }
    }

    /// Publishes `target` whole: writes a temporary file beside it, then renames, replacing what
    /// was there.
    ///
    /// @param force whether bytes and name must survive a power cut when this returns; a killed
    ///   process alone never leaves a partial `target`
    /// @throws KvFerryException [ErrorCode#STORAGE_IO]; `target` is then as it was
    public static void write(
            Path target, Map<String, String> metadata, List<Tensor> tensors, boolean force) {
        Path folder = target.toAbsolutePath().getParent();
        if (folder == null) {
            throw new IllegalArgumentException("not a file path: " + target);
        }
        Path temporary =
                folder.resolve("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
        try {
            try (FileChannel out =
                    FileChannel.open(
                            temporary, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
                writeTo(out, metadata, tensors);
                if (force) {
                    out.force(true);
                }
            }
            Files.move(
                    temporary,
                    target,
                    StandardCopyOption.ATOMIC_MOVE,
                    StandardCopyOption.REPLACE_EXISTING);
            if (force) {
                forceFolder(folder);
            }
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.STORAGE_IO,
                    FileTrouble.describe("cannot write " + target, e),
                    removed(temporary, e));
        }
    }

    /// Writes the same bytes to a channel that the caller owns, for callers with a publish protocol
    /// of their own.
    public static void writeTo(
            WritableByteChannel out, Map<String, String> metadata, List<Tensor> tensors)
            throws IOException {
        List<Tensor> ordered = ordered(tensors);
        writeFully(out, ByteBuffer.wrap(header(metadata, ordered)));
        for (Tensor tensor : ordered) {
            for (long at = 0; at < tensor.data().byteSize(); at += MAX_WRITE_BYTES) {
                long n = Math.min(MAX_WRITE_BYTES, tensor.data().byteSize() - at);
                writeFully(out, tensor.data().asSlice(at, n).asByteBuffer());
            }
        }
    }

    private static List<Tensor> ordered(List<Tensor> tensors) {
        var names = new HashSet<String>();
        for (Tensor tensor : tensors) {
            if (!names.add(tensor.name())) {
                throw new IllegalArgumentException("tensor '" + tensor.name() + "' is given twice");
            }
        }
        var ordered = new ArrayList<>(tensors);
        ordered.sort(
                Comparator.comparingInt((Tensor t) -> -t.type().bytes())
                        .thenComparing(Tensor::name));
        return ordered;
    }

    /// Length prefix and padded JSON.
    private static byte[] header(Map<String, String> metadata, List<Tensor> ordered) {
        var text = new StringWriter();
        try (JsonGenerator json = JSON.createGenerator(ObjectWriteContext.empty(), text)) {
            json.writeStartObject();
            if (!metadata.isEmpty()) {
                json.writeName(HeaderParser.METADATA);
                json.writeStartObject();
                metadata.entrySet().stream()
                        .sorted(Map.Entry.comparingByKey())
                        .forEach(e -> json.writeStringProperty(e.getKey(), e.getValue()));
                json.writeEndObject();
            }
            long at = 0;
            for (Tensor tensor : ordered) {
                writeEntry(json, tensor, at);
                at += tensor.data().byteSize();
            }
            json.writeEndObject();
        }
        byte[] utf8 = text.toString().getBytes(StandardCharsets.UTF_8);
        int padded = (utf8.length + 7) & ~7;
        byte[] out = new byte[Long.BYTES + padded];
        Arrays.fill(out, (byte) ' ');
        ByteBuffer.wrap(out).order(ByteOrder.LITTLE_ENDIAN).putLong(padded).put(utf8);
        return out;
    }

    private static void writeEntry(JsonGenerator json, Tensor tensor, long at) {
        json.writeName(tensor.name());
        json.writeStartObject();
        json.writeStringProperty("dtype", tensor.type().name());
        json.writeName("shape");
        writeLongs(json, tensor.shape());
        json.writeName("data_offsets");
        writeLongs(json, List.of(at, at + tensor.data().byteSize()));
        json.writeEndObject();
    }

    private static void writeLongs(JsonGenerator json, List<Long> numbers) {
        json.writeStartArray();
        for (long number : numbers) {
            json.writeNumber(number);
        }
        json.writeEndArray();
    }

    private static void writeFully(WritableByteChannel out, ByteBuffer bytes) throws IOException {
        while (bytes.hasRemaining()) {
            out.write(bytes);
        }
    }

    private static void forceFolder(Path folder) throws IOException {
        try (FileChannel handle = FileChannel.open(folder, StandardOpenOption.READ)) {
            handle.force(true);
        }
    }

    private static IOException removed(Path temporary, IOException cause) {
        try {
            Files.deleteIfExists(temporary);
        } catch (IOException e) {
            cause.addSuppressed(e);
        }
        return cause;
    }
}
