// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.block;

import io.kvferry.toolkit.disk.space.KeyDigest;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;

/// The name of a block: any text, hashed into a file name and kept in the file for comparison on
/// read.
///
/// Making a key costs a SHA-256; make it once per block and keep it. Equal text gives equal keys in
/// every process.
public final class BlockKey {
    /// Longest key, in UTF-8 bytes.
    public static final int MAX_BYTES = 32_768;

    private final MemorySegment utf8;
    private final KeyDigest digest;
    private final int depth;

    private BlockKey(byte[] utf8, int depth) {
        this.utf8 = MemorySegment.ofArray(utf8);
        this.digest = KeyDigest.ofKey(utf8);
        this.depth = depth;
    }

    /// The key of a block that is part of no prefix.
    public static BlockKey of(String text) {
        return of(text, 0);
    }

    /// The key of `text`, which may hold any character: it never becomes a path.
    ///
    /// @param depth place of the block in its prefix; of blocks used together the deepest is
    ///   evicted first. No part of the key's identity
    /// @throws IllegalArgumentException when `text` is empty or longer than [#MAX_BYTES]
    public static BlockKey of(String text, int depth) {
        byte[] utf8 = text.getBytes(StandardCharsets.UTF_8);
        if (utf8.length == 0 || utf8.length > MAX_BYTES) {
            throw new IllegalArgumentException(
                    "a block key takes 1 to "
                            + MAX_BYTES
                            + " UTF-8 bytes, this one "
                            + utf8.length
                            + "; hash the long part of it");
        }
        return new BlockKey(utf8, depth);
    }

    /// SHA-256 of the text.
    public KeyDigest digest() {
        return digest;
    }

    MemorySegment utf8() {
        return utf8;
    }

    /// Place of the block in its prefix.
    public int depth() {
        return depth;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof BlockKey key && key.digest.equals(digest);
    }

    @Override
    public int hashCode() {
        return digest.hashCode();
    }

    @Override
    public String toString() {
        return new String(utf8.toArray(ValueLayout.JAVA_BYTE), StandardCharsets.UTF_8);
    }
}
