// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.block;

import io.kvferry.spi.memory.BlockHash;
import io.kvferry.toolkit.hash.HashChain;

import java.util.Arrays;

/// The blocks of an engine. A block is held (one or more references) or free; a free block may
/// still be cached, which is found by its hash until it is handed out again, least recently
/// released first.
///
/// Threading: scheduler thread only.
public final class CachePool {
    private final int blocks;
    private final int[] refs;
    private final int[] next;
    private final int[] previous;
    private final HashIndex index;
    private final Evictions evictions;
    private int free;
    private long version;

    /// Who wants to know which hashes can no longer be found.
    public interface Evictions {
        /// No listener.
        Evictions IGNORED =
                new Evictions() {
                    @Override
                    public boolean wanted() {
                        return false;
                    }

                    @Override
                    public void evicted(BlockHash hash) {}
                };

        /// Whether [#evicted] is to be called at all; asked each time, so that silence costs
        /// nothing.
        boolean wanted();

        void evicted(BlockHash hash);
    }

    public CachePool(int blocks, Evictions evictions) {
        this.blocks = blocks;
        this.evictions = evictions;
        refs = new int[blocks];
        next = new int[blocks + 1];
        previous = new int[blocks + 1];
        index = new HashIndex(blocks);
        for (int i = 0; i <= blocks; i++) {
            next[i] = i == blocks ? 0 : i + 1;
            previous[i] = i == 0 ? blocks : i - 1;
        }
        free = blocks;
    }

    public int total() {
        return blocks;
    }

    public int free() {
        return free;
    }

    /// Cached blocks, held ones included.
    public int cached() {
        return index.size();
    }

    /// Cached blocks without a reference.
    public int cachedFree() {
        int count = 0;
        for (int block = next[blocks]; block != blocks; block = next[block]) {
            if (index.contains(block)) {
                count++;
            }
        }
        return count;
    }

    /// Changes whenever a block becomes free: what could not be admitted before may be now.
    public long version() {
        return version;
    }

    public int references(int block) {
        return refs[block];
    }

    /// Takes the free block that was released first, with one reference; its cached content is
    /// forgotten.
    public int allocate() {
        int block = next[blocks];
        if (block == blocks) {
            throw new IllegalStateException("no free block; ask free() first");
        }
        unlink(block);
        forget(block);
        refs[block] = 1;
        return block;
    }

    /// One more reference, which takes a free block off the free list.
    public void retain(int block) {
        if (refs[block]++ == 0) {
            unlink(block);
        }
    }

    /// One reference less; the last one frees the block. A cached block is handed out last, any
    /// other first.
    public void release(int block) {
        if (refs[block] <= 0) {
            throw new IllegalStateException("block " + block + " released without a reference");
        }
        if (--refs[block] == 0) {
            link(block, index.contains(block) ? previous[blocks] : blocks);
            version++;
        }
    }

    /// The cached block with this hash in a group, or -1.
    ///
    /// @param guess the block that probably has it, -1 for none
    public int find(HashChain chain, int position, int group, int guess) {
        return index.find(chain, position, group, guess);
    }

    /// Makes a referenced block findable. The first block with a hash wins; a second one is never
    /// found.
    ///
    /// @return whether lookups now find this block
    public boolean publish(int block, HashChain chain, int position, int group) {
        return !index.contains(block) && index.putIfAbsent(block, chain, position, group);
    }

    /// Forgets all cached content; held blocks stay with their holders.
    ///
    /// @return how many were forgotten
    public int clear() {
        int count = index.size();
        index.clear();
        return count;
    }

    /// Makes one block unfindable, because its content turned out wrong.
    public void forget(int block) {
        if (index.contains(block)) {
            index.remove(block);
            if (evictions.wanted()) {
                evictions.evicted(index.hash(block));
            }
        }
    }

    private void unlink(int block) {
        next[previous[block]] = next[block];
        previous[next[block]] = previous[block];
        free--;
    }

    private void link(int block, int after) {
        next[block] = next[after];
        previous[block] = after;
        previous[next[after]] = block;
        next[after] = block;
        free++;
    }

    /// Throws when free list, counts and references disagree; linear, for tests.
    public void check() {
        int listed = 0;
        for (int block = next[blocks]; block != blocks; block = next[block]) {
            if (refs[block] != 0 || previous[next[block]] != block) {
                throw new IllegalStateException(
                        "block "
                                + block
                                + " is on the free list with "
                                + refs[block]
                                + " references");
            }
            listed++;
        }
        long unheld = Arrays.stream(refs).filter(r -> r == 0).count();
        if (listed != free || unheld != free || Arrays.stream(refs).anyMatch(r -> r < 0)) {
            throw new IllegalStateException(
                    "free " + free + ", listed " + listed + ", unheld " + unheld);
        }
    }
}
