// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.HexFormat;

/// The chained SHA-256 of a full block: over the parent's hash, the block's token ids and its extra
/// keys (multimodal items, adapter), rooted in [CacheNamespace#contentDigest] and the request's
/// salt. Equal in every process and run; two blocks with equal hashes hold the same bits of the
/// same tokens after the same prefix.
public record BlockHash(long w0, long w1, long w2, long w3) {
    /// Bytes of a hash.
    public static final int BYTES = 32;

    private static final VarHandle WORD =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);

    /// The hash whose 32 bytes start at `offset`.
    public static BlockHash of(byte[] bytes, int offset) {
        return new BlockHash(
                (long) WORD.get(bytes, offset),
                (long) WORD.get(bytes, offset + 8),
                (long) WORD.get(bytes, offset + 16),
                (long) WORD.get(bytes, offset + 24));
    }

    private void copyTo(byte[] target, int offset) {
        WORD.set(target, offset, w0);
        WORD.set(target, offset + 8, w1);
        WORD.set(target, offset + 16, w2);
        WORD.set(target, offset + 24, w3);
    }

    public byte[] toBytes() {
        var bytes = new byte[BYTES];
        copyTo(bytes, 0);
        return bytes;
    }

    public String hex() {
        return HexFormat.of().formatHex(toBytes());
    }

    @Override
    public int hashCode() {
        return Long.hashCode(w0); // SHA-256 output: any word is as good as a mix
    }

    @Override
    public String toString() {
        return hex().substring(0, 16) + "..";
    }
}
