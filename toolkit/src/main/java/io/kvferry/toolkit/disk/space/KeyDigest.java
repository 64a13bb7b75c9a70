// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/// The SHA-256 of a key, which names its file; the four parts are its big-endian words.
public record KeyDigest(long a, long b, long c, long d) {
    /// Words of a digest.
    public static final int WORDS = 4;

    /// Hex digits of a digest.
    public static final int HEX_CHARS = 64;

    /// The digest of a key's bytes.
    public static KeyDigest ofKey(byte[] key) {
        try {
            return of(MessageDigest.getInstance("SHA-256").digest(key));
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError("every Java platform has SHA-256", e);
        }
    }

    private static KeyDigest of(byte[] sha256) {
        var words = ByteBuffer.wrap(sha256);
        return new KeyDigest(words.getLong(), words.getLong(), words.getLong(), words.getLong());
    }

    /// The inverse of [#put].
    public static KeyDigest of(long[] words, int first) {
        return new KeyDigest(words[first], words[first + 1], words[first + 2], words[first + 3]);
    }

    /// Puts the words into an array.
    public void put(long[] words, int first) {
        words[first] = a;
        words[first + 1] = b;
        words[first + 2] = c;
        words[first + 3] = d;
    }

    /// The inverse of [#toString].
    ///
    /// @throws IllegalArgumentException when `hex` is not 64 hex digits
    public static KeyDigest ofHex(String hex) {
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
