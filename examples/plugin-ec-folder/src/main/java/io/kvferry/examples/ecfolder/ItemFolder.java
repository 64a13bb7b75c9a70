// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.ecfolder;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.memory.CacheNamespace;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.concurrent.ThreadLocalRandom;
import java.util.zip.CRC32C;

/// The files: `<folder>/<namespace>/<digest of hash and shape>`, the rows of the item and a CRC32C.
/// A hash may be chosen by a user, so it is no file name.
///
/// Threading: any thread and any process; a file appears whole or not at all.
final class ItemFolder {
    private final Path folder;

    ItemFolder(Path root, CacheNamespace namespace) {
        this.folder = root.resolve(namespace.hex());
        try {
            Files.createDirectories(folder);
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.STORAGE_IO,
                    "cannot create " + folder + ": " + e + "; check option \"folder\"",
                    e);
        }
    }

    private Path file(EcItem item) {
        try {
            var name = item.embeddings() + "x" + item.width() + item.dtype().label() + item.hash();
            var digest = MessageDigest.getInstance("SHA-256");
            return folder.resolve(
                    HexFormat.of().formatHex(digest.digest(name.getBytes(StandardCharsets.UTF_8))));
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError("every JDK has SHA-256", e);
        }
    }

    boolean contains(EcItem item) {
        return Files.exists(file(item));
    }

    /// Fills `rows`, and verifies them.
    void read(EcItem item, ByteBuffer rows) {
        var file = file(item);
        try (var channel = FileChannel.open(file, StandardOpenOption.READ)) {
            var trailer = ByteBuffer.allocate(Integer.BYTES);
            long expected = rows.remaining() + Integer.BYTES;
            if (channel.size() != expected) {
                throw damaged(file, channel.size() + " bytes, not " + expected);
            }
            int start = rows.position();
            readFully(channel, rows);
            readFully(channel, trailer);
            if (trailer.flip().getInt() != checksum(rows.position(start))) {
                throw damaged(file, "wrong checksum");
            }
        } catch (NoSuchFileException e) {
            throw new KvFerryException(ErrorCode.MISS, file + " is gone", e);
        } catch (IOException e) {
            throw new KvFerryException(ErrorCode.STORAGE_IO, "reading " + file + ": " + e, e);
        }
    }

    /// Otherwise a damaged file would be found again and again. Without it the item is encoded and
    /// saved again.
    private static KvFerryException damaged(Path file, String how) throws IOException {
        Files.deleteIfExists(file);
        return new KvFerryException(ErrorCode.CORRUPT, file + ": " + how);
    }

    private static void readFully(FileChannel channel, ByteBuffer into) throws IOException {
        while (into.hasRemaining()) {
            if (channel.read(into) < 0) {
                throw new IOException("ends early");
            }
        }
    }

    void write(EcItem item, ByteBuffer rows) {
        var file = file(item);
        var temporary =
                file.resolveSibling(
                        file.getFileName() + ".tmp" + ThreadLocalRandom.current().nextLong());
        try {
            try (var channel =
                    FileChannel.open(
                            temporary, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
                var trailer = ByteBuffer.allocate(Integer.BYTES).putInt(checksum(rows)).flip();
                while (rows.hasRemaining()) {
                    channel.write(rows);
                }
                channel.write(trailer);
            }
            Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException e) {
            throw new KvFerryException(ErrorCode.STORAGE_IO, "writing " + file + ": " + e, e);
        }
    }

    private static int checksum(ByteBuffer bytes) {
        var crc = new CRC32C();
        crc.update(bytes.duplicate());
        return (int) crc.getValue();
    }
}
