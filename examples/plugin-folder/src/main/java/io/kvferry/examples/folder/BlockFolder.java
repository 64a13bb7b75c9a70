// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.folder;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.ThreadLocalRandom;
import java.util.zip.CRC32C;

/// The files: `<folder>/<namespace>/<hash>.<rank>`, the bytes of the block and a CRC32C.
///
/// Threading: any thread and any process; a file appears whole or not at all.
final class BlockFolder {
    private final Path folder;

    BlockFolder(Path root, CacheNamespace namespace) {
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

    private Path file(BlockHash hash, int rank) {
        return folder.resolve(hash.hex() + "." + rank);
    }

    /// Whether every rank has stored its part.
    boolean contains(BlockHash hash, int ranks) {
        for (int rank = 0; rank < ranks; rank++) {
            if (!Files.exists(file(hash, rank))) {
                return false;
            }
        }
        return true;
    }

    /// Fills `block`, and verifies it.
    void read(BlockHash hash, int rank, ByteBuffer block) {
        var file = file(hash, rank);
        try (var channel = FileChannel.open(file, StandardOpenOption.READ)) {
            var trailer = ByteBuffer.allocate(Integer.BYTES);
            if (channel.size() != block.remaining() + Integer.BYTES) {
                throw damaged(
                        file,
                        channel.size() + " bytes, not " + (block.remaining() + Integer.BYTES));
            }
            int start = block.position();
            readFully(channel, block);
            readFully(channel, trailer);
            if (trailer.flip().getInt() != checksum(block.position(start))) {
                throw damaged(file, "wrong checksum");
            }
        } catch (NoSuchFileException e) {
            throw new KvFerryException(ErrorCode.MISS, file + " is gone", e);
        } catch (IOException e) {
            throw new KvFerryException(ErrorCode.STORAGE_IO, "reading " + file + ": " + e, e);
        }
    }

    /// Otherwise a damaged file would be found again and again. Without it the block is computed
    /// and saved again.
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

    void write(BlockHash hash, int rank, ByteBuffer block) {
        var file = file(hash, rank);
        var temporary =
                file.resolveSibling(
                        file.getFileName() + ".tmp" + ThreadLocalRandom.current().nextLong());
        try {
            try (var channel =
                    FileChannel.open(
                            temporary, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
                var trailer = ByteBuffer.allocate(Integer.BYTES).putInt(checksum(block)).flip();
                while (block.hasRemaining()) {
                    channel.write(block);
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
