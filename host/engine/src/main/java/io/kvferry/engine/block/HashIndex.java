// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.block;

import io.kvferry.spi.memory.BlockHash;
import io.kvferry.toolkit.hash.HashChain;

import java.util.Arrays;

/// Open-addressing table from (hash, group) to block id, at most half full; each block is in it at
/// most once. Linear probing with backward-shift deletion, so there are no tombstones and no
/// rehashing.
///
/// An occupied slot has the block in its low half and the block's key in its high half. The key
/// distinguishes blocks and determines the first slot to probe. A probe reads another block's full
/// hash, which is likely a cache miss, only if the keys are equal.
final class HashIndex {
    private static final int NONE = -1;
    private static final long EMPTY = -1;

    private final int mask;
    private final long[] slots;
    private final int[] slotOf;
    private final int[] groups;
    private final long[] words;
    private int size;

    HashIndex(int blocks) {
        int capacity = Math.max(16, Integer.highestOneBit(Math.max(1, blocks)) << 2);
        mask = capacity - 1;
        slots = new long[capacity];
        Arrays.fill(slots, EMPTY);
        slotOf = new int[blocks];
        Arrays.fill(slotOf, NONE);
        groups = new int[blocks];
        words = new long[4 * blocks];
    }

    int size() {
        return size;
    }

    boolean contains(int block) {
        return slotOf[block] != NONE;
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
                && slotOf[guess] != NONE
                && equal(guess, chain, position, group)) {
            return guess;
        }
        int key = key(chain.word(position, 0), group);
        for (int slot = key & mask; slots[slot] != EMPTY; slot = slot + 1 & mask) {
            if (key(slots[slot]) == key && equal(block(slots[slot]), chain, position, group)) {
                return block(slots[slot]);
            }
        }
        return NONE;
    }

    private boolean equal(int block, HashChain chain, int position, int group) {
        return chain.matches(position, words, 4 * block) && groups[block] == group;
    }

    /// Enters a block that is not in the table, unless another one has its hash.
    ///
    /// @return whether it is in the table now
    boolean putIfAbsent(int block, HashChain chain, int position, int group) {
        int key = key(chain.word(position, 0), group);
        int slot = key & mask;
        for (; slots[slot] != EMPTY; slot = slot + 1 & mask) {
            if (key(slots[slot]) == key && equal(block(slots[slot]), chain, position, group)) {
                return false;
            }
        }
        for (int i = 0; i < 4; i++) {
            words[4 * block + i] = chain.word(position, i);
        }
        groups[block] = group;
        slots[slot] = (long) key << 32 | block;
        slotOf[block] = slot;
        size++;
        return true;
    }

    void remove(int block) {
        int hole = slotOf[block];
        slotOf[block] = NONE;
        size--;
        for (int slot = hole + 1 & mask; slots[slot] != EMPTY; slot = slot + 1 & mask) {
            long moved = slots[slot];
            // move it when its first slot is not within (hole, slot], cyclically
            if ((slot - key(moved) & mask) >= (slot - hole & mask)) {
                slots[hole] = moved;
                slotOf[block(moved)] = hole;
                hole = slot;
            }
        }
        slots[hole] = EMPTY;
    }

    void clear() {
        Arrays.fill(slots, EMPTY);
        Arrays.fill(slotOf, NONE);
        size = 0;
    }

    private static int key(long word, int group) {
        return (int) (word ^ word >>> 32) + group * 0x9E3779B9;
    }

    private static int key(long occupied) {
        return (int) (occupied >>> 32);
    }

    private static int block(long occupied) {
        return (int) occupied;
    }
}
