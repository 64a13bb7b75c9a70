// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import java.nio.ByteBuffer;
import java.util.HexFormat;

/// The SHA-256 of a canonical key, which names the file of the block; the four parts are its
/// big-endian words.
public record BlockDigest(long a, long b, long c, long d) {
    /// Hex digits of a digest.
    static final int HEX_CHARS = 64;

    static BlockDigest of(byte[] sha256) {
        var words = ByteBuffer.wrap(sha256);
        return new BlockDigest(words.getLong(), words.getLong(), words.getLong(), words.getLong());
    }

    /// The inverse of [#toString].
    ///
    /// @throws IllegalArgumentException when `hex` is not 64 hex digits
    static BlockDigest ofHex(String hex) {
        if (hex.length() != HEX_CHARS) {
            throw new IllegalArgumentException("not 64 hex digits: " + hex);
        }
        return of(HexFormat.of().parseHex(hex));
    }

    @Override
    public String toString() {
        var hex = HexFormat.of();
        return hex.toHexDigits(a) + hex.toHexDigits(b) + hex.toHexDigits(c) + hex.toHexDigits(d);
    }
}
