// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;
import io.kvferry.toolkit.files.PrivateFolder;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.UUID;

/// Where things lie below the root: `<namespace digest>/namespace.txt`, `.../blocks/<2 hex>/<1
/// hex>/<64 hex>.kvb` and `.../tmp/<process>-<number>`. No part of a path comes from a key.
final class StoreFolder {
    /// The encoding that the JDK itself uses for file names.
    static final Charset PATH_CHARSET =
            Charset.forName(System.getProperty("sun.jnu.encoding", StandardCharsets.UTF_8.name()));

    static final String SUFFIX = ".kvb";

    private static final int NAMESPACE_HEX = 32;

    private final Path folder;
    private final Path blocks;
    private final Path temps;
    private final Path bad;
    private final BlockDigest namespaceDigest;
    private final String processTag = UUID.randomUUID().toString().substring(0, 18);

    private StoreFolder(Path folder, BlockDigest namespaceDigest) {
        this.folder = folder;
        this.blocks = folder.resolve("blocks");
        this.temps = folder.resolve("tmp");
        this.bad = folder.resolve("bad");
        this.namespaceDigest = namespaceDigest;
    }

    /// Makes or checks the folders.
    ///
    /// @param checked whether to refuse a root that other users may write to
    /// @throws KvFerryException [ErrorCode#STORAGE_IO] when they cannot be made,
    ///   [ErrorCode#BAD_CONFIG] when other users may write to them, [ErrorCode#INCOMPATIBLE] when
    ///   the folder belongs to another namespace
    static StoreFolder open(Path root, String namespace, boolean checked) {
        BlockDigest digest =
                BlockDigest.of(BlockKey.sha256(namespace.getBytes(StandardCharsets.UTF_8)));
        var folder =
                new StoreFolder(
                        root.toAbsolutePath()
                                .normalize()
                                .resolve(digest.toString().substring(0, NAMESPACE_HEX)),
                        digest);
        try {
            PrivateFolder.make(folder.blocks);
            PrivateFolder.make(folder.temps);
            PrivateFolder.make(folder.bad);
            folder.checkNamespace();
            if (checked) {
                folder.checkAccess(root);
            }
            return folder;
        } catch (IOException e) {
            throw FileTrouble.exception("cannot use " + root + " as a block store", e);
        }
    }

    /// Nobody else may have made, or may write to, any folder on the way from the root to a block.
    private void checkAccess(Path root) throws IOException {
        Path own = temps.resolve(processTag + "-owner");
        PrivateFolder.makeFile(own);
        try {
            for (Path each : List.of(root, folder, blocks, temps, bad)) {
                PrivateFolder.check(each, own);
            }
        } finally {
            Files.deleteIfExists(own);
        }
    }

    /// Guards against folders moved by hand. The file holds a digest, because a namespace contains
    /// the salt of its tenant.
    private void checkNamespace() throws IOException {
        Path file = folder.resolve("namespace.txt");
        String namespace = namespaceDigest + "\n";
        // Empty: a power cut came between its rename and its bytes.
        if (!Files.exists(file) || Files.size(file) == 0) {
            Path temporary = temps.resolve(processTag + "-namespace");
            PrivateFolder.makeFile(temporary);
            Files.writeString(temporary, namespace);
            Files.move(
                    temporary,
                    file,
                    StandardCopyOption.ATOMIC_MOVE,
                    StandardCopyOption.REPLACE_EXISTING);
        }
        if (!Files.readString(file).equals(namespace)) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    folder
                            + " belongs to another namespace, see "
                            + file
                            + "; move it away or choose another root");
        }
    }

    Path folder() {
        return folder;
    }

    Path blocks() {
        return blocks;
    }

    Path temps() {
        return temps;
    }

    BlockDigest namespaceDigest() {
        return namespaceDigest;
    }

    /// The file of a block, for tests, tools and scans.
    Path file(BlockDigest digest) {
        String hex = digest.toString();
        return blocks.resolve(hex.substring(0, 2))
                .resolve(hex.substring(2, 3))
                .resolve(hex + SUFFIX);
    }

    /// Path buffers for one thread, in memory that lives as long as `arena`.
    Names names(Arena arena, int thread) {
        return new Names(arena, thread);
    }

    /// Names of files as the system wants them, rewritten in place per block.
    final class Names {
        private static final byte[] HEX = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);
        private static final int COUNTER_HEX = 16;
        private static final String FOLDERS = "aa/b/";

        private final MemorySegment file;
        private final MemorySegment top;
        private final MemorySegment outer;
        private final MemorySegment inner;
        private final MemorySegment temp;
        private final MemorySegment badFile;
        private final int prefix;
        private final int tempPrefix;
        private long counter;

        private Names(Arena arena, int thread) {
            String fileForm = blocks + "/" + FOLDERS + "0".repeat(BlockDigest.HEX_CHARS) + SUFFIX;
            this.file = arena.allocateFrom(fileForm, PATH_CHARSET);
            this.top = arena.allocateFrom(blocks.toString(), PATH_CHARSET);
            this.outer = arena.allocateFrom(blocks + "/aa", PATH_CHARSET);
            this.inner = arena.allocateFrom(blocks + "/aa/b", PATH_CHARSET);
            this.prefix = (blocks + "/").getBytes(PATH_CHARSET).length;
            String tempForm = temps + "/" + processTag + "-" + thread + "-";
            this.temp = arena.allocateFrom(tempForm + "0".repeat(COUNTER_HEX), PATH_CHARSET);
            this.badFile = arena.allocateFrom(bad + "/0", PATH_CHARSET);
            this.tempPrefix = tempForm.getBytes(PATH_CHARSET).length;
        }

        /// Path of the block; valid until the next call.
        MemorySegment file(BlockDigest digest) {
            return file(digest.a(), digest.b(), digest.c(), digest.d());
        }

        MemorySegment file(long a, long b, long c, long d) {
            folders(file, a);
            int at = prefix + FOLDERS.length();
            at = hex(file, at, a);
            at = hex(file, at, b);
            at = hex(file, at, c);
            hex(file, at, d);
            return file;
        }

        /// The folder above all of those.
        MemorySegment blocksFolder() {
            return top;
        }

        /// First-level folder of the block.
        MemorySegment outerFolder(BlockDigest digest) {
            nibble(outer, prefix, digest.a() >>> 60);
            nibble(outer, prefix + 1, digest.a() >>> 56);
            return outer;
        }

        /// Second-level folder of the block.
        MemorySegment innerFolder(BlockDigest digest) {
            folders(inner, digest.a());
            return inner;
        }

        /// Where a file that cannot be read is set aside: one of sixteen names, so that these files
        /// stay few.
        MemorySegment bad(BlockDigest digest) {
            nibble(badFile, badFile.byteSize() - 2, digest.a());
            return badFile;
        }

        /// A fresh name for an unfinished file; valid until the next call.
        MemorySegment nextTemp() {
            hex(temp, tempPrefix, ++counter);
            return temp;
        }

        private void folders(MemorySegment path, long firstWord) {
            nibble(path, prefix, firstWord >>> 60);
            nibble(path, prefix + 1, firstWord >>> 56);
            nibble(path, prefix + 3, firstWord >>> 52);
        }

        private static int hex(MemorySegment path, int at, long word) {
            for (int shift = 60; shift >= 0; shift -= 4) {
                nibble(path, at++, word >>> shift);
            }
            return at;
        }

        private static void nibble(MemorySegment path, long at, long value) {
            path.set(ValueLayout.JAVA_BYTE, at, HEX[(int) value & 0xF]);
        }
    }
}
