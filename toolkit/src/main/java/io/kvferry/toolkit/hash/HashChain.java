// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.hash;

import io.kvferry.spi.memory.BlockHash;

import java.util.Arrays;
import java.util.Objects;

/// The block hashes of one request, four words each, packed.
///
/// Threading: confined to its owner.
public final class HashChain {
    private static final int WORDS = 4;

    private long[] words;
    private int count;

    /// An empty chain after `root`.
    public HashChain(BlockHash root, int expectedBlocks) {
        words = new long[WORDS * (expectedBlocks + 1)];
        put(0, root.w0(), root.w1(), root.w2(), root.w3());
    }

    /// Blocks with a hash.
    public int count() {
        return count;
    }

    public BlockHash get(int block) {
        int at = at(block);
        return new BlockHash(words[at], words[at + 1], words[at + 2], words[at + 3]);
    }

    /// One of the four words of a hash, without an object for it.
    public long word(int block, int index) {
        return words[at(block) + index];
    }

    private int at(int block) {
        return WORDS * (Objects.checkIndex(block, count) + 1);
    }

    void append(byte[] hash) {
        int at = WORDS * (count + 1);
        if (at + WORDS > words.length) {
            words = Arrays.copyOf(words, Math.max(words.length * 2, at + WORDS));
        }
        put(at, word(hash, 0), word(hash, 8), word(hash, 16), word(hash, 24));
        count++;
    }

    void copyLast(byte[] target) {
        int at = WORDS * count;
        for (int i = 0; i < WORDS; i++) {
            long word = words[at + i];
            for (int b = 0; b < 8; b++) {
                target[8 * i + b] = (byte) (word >>> (56 - 8 * b));
            }
        }
    }

    private static long word(byte[] bytes, int from) {
        long word = 0;
        for (int b = 0; b < 8; b++) {
            word = (word << 8) | (bytes[from + b] & 0xff);
        }
        return word;
    }

    private void put(int at, long w0, long w1, long w2, long w3) {
        words[at] = w0;
        words[at + 1] = w1;
        words[at + 2] = w2;
        words[at + 3] = w3;
    }
}
