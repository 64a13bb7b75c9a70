// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.tokenizer;

import java.util.Arrays;

/// The GPT-2 alphabet: one printable character per byte value, in which byte-level vocabularies are
/// written down.
///
/// Printable Latin-1 bytes stand for themselves; the other 68 are given U+0100 onwards, in byte
/// order.
public final class ByteAlphabet {
    private static final char[] CHAR_OF = new char[256];
    private static final short[] BYTE_OF = new short[256 + 68];

    static {
        Arrays.fill(BYTE_OF, (short) -1);
        char next = 256;
        for (int b = 0; b < 256; b++) {
            boolean printable = b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae;
            CHAR_OF[b] = printable ? (char) b : next++;
            BYTE_OF[CHAR_OF[b]] = (short) b;
        }
    }

    private ByteAlphabet() {}

    /// The character that stands for `value` (0..255).
    public static char charOf(int value) {
        return CHAR_OF[value];
    }

    /// The byte behind a character, 0..255; -1 for a character outside the alphabet.
    public static int byteOf(char c) {
        return c < BYTE_OF.length ? BYTE_OF[c] : -1;
    }
}
