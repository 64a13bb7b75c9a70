// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.hash;

import io.kvferry.spi.memory.BlockHash;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Objects;

/// The block hashes of one request, four words each, packed. Those of a prompt lie in one array;
/// those that come later in pages, so that one more hash never copies those before it.
///
/// Threading: confined to its owner.
public final class HashChain {
    private static final VarHandle WORD =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);
    private static final int WORDS = 4;
    private static final int SHIFT = 5;
    private static final int PAGE = 1 << SHIFT;

    private final long[] root = new long[WORDS];

    /// The expected blocks.
    private final long[] first;

    private final int firstCount;
    private long[][] pages = new long[4][];
    private int count;

    /// An empty chain after `root`.
    ///
    /// @param expectedBlocks for which there is room at once
    public HashChain(BlockHash root, int expectedBlocks) {
        firstCount = expectedBlocks;
        first = new long[Math.multiplyExact(WORDS, expectedBlocks)];
        this.root[0] = root.w0();
        this.root[1] = root.w1();
        this.root[2] = root.w2();
        this.root[3] = root.w3();
    }

    /// Blocks with a hash.
    public int count() {
        return count;
    }

    public BlockHash get(int block) {
        var words = words(Objects.checkIndex(block, count));
        int at = at(block);
        return new BlockHash(words[at], words[at + 1], words[at + 2], words[at + 3]);
    }

    /// One of the four words of a hash, without an object for it.
    public long word(int block, int index) {
        return words(Objects.checkIndex(block, count))[at(block) + index];
    }

    /// Whether the hash of a block is in `other` from `from` on.
    public boolean matches(int block, long[] other, int from) {
        var words = words(Objects.checkIndex(block, count));
        int at = at(block);
        return words[at] == other[from]
                && words[at + 1] == other[from + 1]
                && words[at + 2] == other[from + 2]
                && words[at + 3] == other[from + 3];
    }

    /// The array that holds the hash of a block, at [#at].
    private long[] words(int block) {
        return block < firstCount ? first : pages[block - firstCount >>> SHIFT];
    }

    private int at(int block) {
        return WORDS * (block < firstCount ? block : block - firstCount & PAGE - 1);
    }

    void append(byte[] hash) {
        int behind = count - firstCount;
        if (behind >= 0 && (behind & PAGE - 1) == 0) {
            int page = behind >>> SHIFT;
            if (page == pages.length) {
                pages = Arrays.copyOf(pages, 2 * page);
            }
            pages[page] = new long[WORDS * PAGE];
        }
        var words = words(count);
        int at = at(count);
        for (int i = 0; i < WORDS; i++) {
            words[at + i] = (long) WORD.get(hash, 8 * i);
        }
        count++;
    }

    void copyLast(byte[] target) {
        var words = count == 0 ? root : words(count - 1);
        int at = count == 0 ? 0 : at(count - 1);
        for (int i = 0; i < WORDS; i++) {
            WORD.set(target, 8 * i, words[at + i]);
        }
    }
}
