// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.block;

import io.kvferry.spi.memory.BlockHash;
import io.kvferry.toolkit.hash.HashChain;

import java.util.Arrays;

/// Open-addressing table from (hash, group) to block id, at most half full; each block is in it at
/// most once. Linear probing with backward-shift deletion, so there are no tombstones and no
/// rehashing.
final class HashIndex {
    private static final int EMPTY = -1;

    private final int mask;
    private final int[] slots;
    private final int[] slotOf;
    private final int[] groups;
    private final long[] words;
    private int size;

    HashIndex(int blocks) {
        int capacity = Math.max(16, Integer.highestOneBit(Math.max(1, blocks)) << 2);
        mask = capacity - 1;
        slots = new int[capacity];
        Arrays.fill(slots, EMPTY);
        slotOf = new int[blocks];
        Arrays.fill(slotOf, EMPTY);
        groups = new int[blocks];
        words = new long[4 * blocks];
    }

    int size() {
        return size;
    }

    boolean contains(int block) {
        return slotOf[block] != EMPTY;
    }

    BlockHash hash(int block) {
        int at = 4 * block;
        return new BlockHash(words[at], words[at + 1], words[at + 2], words[at + 3]);
    }

    /// @param guess the block that has the hash if a prefix lies in neighbouring blocks; any
    ///   number. A long prefix is then read in the order of its blocks, and only a wrong guess
    ///   costs a look at a random place of the table
    int find(HashChain chain, int position, int group, int guess) {
        if (guess >= 0
                && guess < slotOf.length
                && slotOf[guess] != EMPTY
                && equal(guess, chain, position, group)) {
            return guess;
        }
        for (int slot = home(chain.word(position, 0), group);
                slots[slot] != EMPTY;
                slot = slot + 1 & mask) {
            if (equal(slots[slot], chain, position, group)) {
                return slots[slot];
            }
        }
        return EMPTY;
    }

    private boolean equal(int block, HashChain chain, int position, int group) {
        return chain.matches(position, words, 4 * block) && groups[block] == group;
    }

    /// Enters a block that is not in the table, unless another one has its hash.
    ///
    /// @return whether it is in the table now
    boolean putIfAbsent(int block, HashChain chain, int position, int group) {
        int slot = home(chain.word(position, 0), group);
        for (; slots[slot] != EMPTY; slot = slot + 1 & mask) {
            if (equal(slots[slot], chain, position, group)) {
                return false;
            }
        }
        for (int i = 0; i < 4; i++) {
            words[4 * block + i] = chain.word(position, i);
        }
        groups[block] = group;
        slots[slot] = block;
        slotOf[block] = slot;
        size++;
        return true;
    }

    void remove(int block) {
        int hole = slotOf[block];
        slotOf[block] = EMPTY;
        size--;
        for (int slot = hole + 1 & mask; slots[slot] != EMPTY; slot = slot + 1 & mask) {
            int moved = slots[slot];
            int home = home(words[4 * moved], groups[moved]);
            // move it when its home is not within (hole, slot], cyclically
            if ((slot - home & mask) >= (slot - hole & mask)) {
                slots[hole] = moved;
                slotOf[moved] = hole;
                hole = slot;
            }
        }
        slots[hole] = EMPTY;
    }

    void clear() {
        Arrays.fill(slots, EMPTY);
        Arrays.fill(slotOf, EMPTY);
        size = 0;
    }

    private int home(long word, int group) {
        return (int) (word ^ word >>> 32) + group * 0x9E3779B9 & mask;
    }
}
