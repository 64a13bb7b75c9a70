// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import java.util.Arrays;

/// ZeroMQ's text form of binary keys (RFC 32): 4 bytes as 5 printable characters.
final class Z85 {
    private static final String DIGITS =
            "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    private static final int BASE = 85;
    private static final int[] VALUES = new int[128];

    static {
        Arrays.fill(VALUES, -1);
        for (int i = 0; i < BASE; i++) {
            VALUES[DIGITS.charAt(i)] = i;
        }
    }

    private Z85() {}

    /// @throws IllegalArgumentException when the text is no Z85; the message does not repeat it
    static byte[] decode(String text) {
        if (text.length() % 5 != 0) {
            throw new IllegalArgumentException("Z85 of " + text.length() + " characters");
        }
        var bytes = new byte[text.length() / 5 * 4];
        for (int group = 0; group < bytes.length / 4; group++) {
            long value = 0;
            for (int i = 0; i < 5; i++) {
                char c = text.charAt(group * 5 + i);
                if (c >= VALUES.length || VALUES[c] < 0) {
                    throw new IllegalArgumentException("not a character of Z85");
                }
                value = value * BASE + VALUES[c];
            }
            if (value > 0xFFFF_FFFFL) {
                throw new IllegalArgumentException("Z85 group out of range");
            }
            for (int i = 0; i < 4; i++) {
                bytes[group * 4 + i] = (byte) (value >>> (24 - 8 * i));
            }
        }
        return bytes;
    }

    static String encode(byte[] bytes) {
        if (bytes.length % 4 != 0) {
            throw new IllegalArgumentException("Z85 needs a multiple of 4 bytes");
        }
        var text = new char[bytes.length / 4 * 5];
        for (int group = 0; group < bytes.length / 4; group++) {
            long value = 0;
            for (int i = 0; i < 4; i++) {
                value = value << 8 | bytes[group * 4 + i] & 0xFF;
            }
            for (int i = 4; i >= 0; i--) {
                text[group * 5 + i] = DIGITS.charAt((int) (value % BASE));
                value /= BASE;
            }
        }
        return new String(text);
    }
}
