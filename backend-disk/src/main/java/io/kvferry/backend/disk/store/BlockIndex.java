// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import java.util.Arrays;

/// A hash table from digest to size, pins and age, threaded by one least-recently-used list.
///
/// All of it lies in primitive arrays, so that adding and evicting blocks makes no garbage and a
/// million blocks take 80 MB less than as objects. Slots are indexes into the arrays; -1 is none.
///
/// Threading: none of its own; [Catalog] guards it.
final class BlockIndex {
    static final int NONE = -1;

    private static final int WORDS = 4;
    private static final int FIRST_CAPACITY = 1024;

    private long[] digests = new long[FIRST_CAPACITY * WORDS];
    private long[] bytes = new long[FIRST_CAPACITY];
    private long[] verifiedAt = new long[FIRST_CAPACITY];
    private long[] distrustedUntil = new long[FIRST_CAPACITY];
    private boolean[] distrusted = new boolean[FIRST_CAPACITY];
    private int[] pins = new int[FIRST_CAPACITY];
    private int[] scans = new int[FIRST_CAPACITY];
    private int[] newer = new int[FIRST_CAPACITY];
    private int[] older = new int[FIRST_CAPACITY];
    private int[] chain = new int[FIRST_CAPACITY];
    private int[] buckets = filled(FIRST_CAPACITY * 2);
    private int newest = NONE;
    private int oldest = NONE;
    private int free = NONE;
    private int used;
    private int size;
    private long totalBytes;

    int size() {
        return size;
    }

    long totalBytes() {
        return totalBytes;
    }

    int find(BlockDigest digest) {
        for (int slot = buckets[bucket(digest.a())]; slot != NONE; slot = chain[slot]) {
            int at = slot * WORDS;
            if (digests[at] == digest.a()
                    && digests[at + 1] == digest.b()
                    && digests[at + 2] == digest.c()
                    && digests[at + 3] == digest.d()) {
                return slot;
            }
        }
        return NONE;
    }

    /// Adds an absent digest as the newest; answers its slot.
    int add(BlockDigest digest, long size) {
        int slot = claim();
        int at = slot * WORDS;
        digests[at] = digest.a();
        digests[at + 1] = digest.b();
        digests[at + 2] = digest.c();
        digests[at + 3] = digest.d();
        bytes[slot] = size;
        pins[slot] = 0;
        scans[slot] = 0;
        distrusted[slot] = false;
        int bucket = bucket(digest.a());
        chain[slot] = buckets[bucket];
        buckets[bucket] = slot;
        linkNewest(slot);
        totalBytes += size;
        this.size++;
        return slot;
    }

    void remove(int slot) {
        int bucket = bucket(digests[slot * WORDS]);
        if (buckets[bucket] == slot) {
            buckets[bucket] = chain[slot];
        } else {
            int before = buckets[bucket];
            while (chain[before] != slot) {
                before = chain[before];
            }
            chain[before] = chain[slot];
        }
        unlink(slot);
        totalBytes -= bytes[slot];
        size--;
        chain[slot] = free;
        free = slot;
    }

    void touch(int slot) {
        unlink(slot);
        linkNewest(slot);
    }

    void resize(int slot, long size) {
        totalBytes += size - bytes[slot];
        bytes[slot] = size;
    }

    /// The least recently used slot without a pin.
    int oldestUnpinned() {
        int slot = oldest;
        while (slot != NONE && pins[slot] > 0) {
            slot = newer[slot];
        }
        return slot;
    }

    int oldest() {
        return oldest;
    }

    int newerThan(int slot) {
        return newer[slot];
    }

    BlockDigest digest(int slot) {
        int at = slot * WORDS;
        return new BlockDigest(digests[at], digests[at + 1], digests[at + 2], digests[at + 3]);
    }

    /// The same without an object.
    void digest(int slot, long[] out) {
        System.arraycopy(digests, slot * WORDS, out, 0, WORDS);
    }

    long bytes(int slot) {
        return bytes[slot];
    }

    int pins(int slot) {
        return pins[slot];
    }

    void pins(int slot, int count) {
        pins[slot] = count;
    }

    long verifiedAt(int slot) {
        return verifiedAt[slot];
    }

    void verifiedAt(int slot, long nanoTime) {
        verifiedAt[slot] = nanoTime;
        distrusted[slot] = false;
    }

    boolean distrusted(int slot, long now) {
        return distrusted[slot] && distrustedUntil[slot] - now > 0;
    }

    void distrust(int slot, long untilNanoTime) {
        distrusted[slot] = true;
        distrustedUntil[slot] = untilNanoTime;
    }

    int scan(int slot) {
        return scans[slot];
    }

    void scan(int slot, int number) {
        scans[slot] = number;
    }

    private int claim() {
        if (free != NONE) {
            int slot = free;
            free = chain[slot];
            return slot;
        }
        if (used == bytes.length) {
            grow();
        }
        return used++;
    }

    private void grow() {
        int capacity = Math.multiplyExact(bytes.length, 2);
        digests = Arrays.copyOf(digests, Math.multiplyExact(capacity, WORDS));
        bytes = Arrays.copyOf(bytes, capacity);
        verifiedAt = Arrays.copyOf(verifiedAt, capacity);
        distrustedUntil = Arrays.copyOf(distrustedUntil, capacity);
        distrusted = Arrays.copyOf(distrusted, capacity);
        pins = Arrays.copyOf(pins, capacity);
        scans = Arrays.copyOf(scans, capacity);
        newer = Arrays.copyOf(newer, capacity);
        older = Arrays.copyOf(older, capacity);
        chain = Arrays.copyOf(chain, capacity);
        buckets = filled(capacity * 2);
        // Only called with no free slot, so every slot below `used` is live.
        for (int slot = 0; slot < used; slot++) {
            int bucket = bucket(digests[slot * WORDS]);
            chain[slot] = buckets[bucket];
            buckets[bucket] = slot;
        }
    }

    private int bucket(long word) {
        return (int) word & (buckets.length - 1);
    }

    private void linkNewest(int slot) {
        older[slot] = newest;
        newer[slot] = NONE;
        if (newest == NONE) {
            oldest = slot;
        } else {
            newer[newest] = slot;
        }
        newest = slot;
    }

    private void unlink(int slot) {
        if (older[slot] == NONE) {
            oldest = newer[slot];
        } else {
            newer[older[slot]] = newer[slot];
        }
        if (newer[slot] == NONE) {
            newest = older[slot];
        } else {
            older[newer[slot]] = older[slot];
        }
    }

    private static int[] filled(int length) {
        int[] array = new int[length];
        Arrays.fill(array, NONE);
        return array;
    }
}
