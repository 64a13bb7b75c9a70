// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import java.util.Arrays;

/// A hash table from digest to size and time of use, threaded by one list that is sorted by time of
/// use.
///
/// An access-ordered LinkedHashMap would not do: what other processes used is learned late, so
/// files enter the order in its middle, and of a prefix used at once the deepest must come first.
/// docs/measurements.md has what a file takes here, in such a map and with a tree for the order
/// (`benchmarks/run catalog`).
///
/// All of it lies in primitive arrays, so that adding, using and evicting files makes no garbage.
/// Slots are indexes into the arrays; -1 is none.
///
/// Threading: none of its own; [SpaceCatalog] guards it.
final class RecencyIndex {
    static final int NONE = -1;

    private static final int WORDS = 4;
    static final int FIRST_CAPACITY = 1024;

    /// Searches of so few steps from an end do not end the walk of a scan. Uses by this process
    /// take about as many as there are files of the prefixes that are used together.
    private static final int FEW = 256;

    private long[] digests = new long[FIRST_CAPACITY * WORDS];
    private long[] bytes = new long[FIRST_CAPACITY];
    private long[] verifiedAt = new long[FIRST_CAPACITY];
    private long[] suppressedUntil = new long[FIRST_CAPACITY];
    private boolean[] suppressed = new boolean[FIRST_CAPACITY];
    private byte[] suppressions = new byte[FIRST_CAPACITY];
    private boolean[] unreadable = new boolean[FIRST_CAPACITY];
    private long[] stamps = new long[FIRST_CAPACITY];
    private long[] persisted = new long[FIRST_CAPACITY];
    private boolean[] held = new boolean[FIRST_CAPACITY];
    private int[] scans = new int[FIRST_CAPACITY];
    private int[] newer = new int[FIRST_CAPACITY];
    private int[] older = new int[FIRST_CAPACITY];
    private int[] chain = new int[FIRST_CAPACITY];
    private int[] buckets = buckets(FIRST_CAPACITY);
    private int newest = NONE;
    private int oldest = NONE;

    /// Where the last search for a place in the list ended, but for those of few steps from an end.
    private int searched = NONE;

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

    int find(KeyDigest digest) {
        return find(digest.a(), digest.b(), digest.c(), digest.d());
    }

    int find(long[] words) {
        return find(words[0], words[1], words[2], words[3]);
    }

    int find(long a, long b, long c, long d) {
        for (int slot = buckets[bucket(a)]; slot != NONE; slot = chain[slot]) {
            int at = slot * WORDS;
            if (digests[at] == a
                    && digests[at + 1] == b
                    && digests[at + 2] == c
                    && digests[at + 3] == d) {
                return slot;
            }
        }
        return NONE;
    }

    /// Adds an absent digest; answers its slot.
    ///
    /// @param stamp time of use, see [Recency]
    int add(KeyDigest digest, long size, long stamp) {
        return add(digest.a(), digest.b(), digest.c(), digest.d(), size, stamp);
    }

    /// The same without an object, and without memory where a slot is free.
    int add(long[] words, long size, long stamp) {
        return add(words[0], words[1], words[2], words[3], size, stamp);
    }

    private int add(long a, long b, long c, long d, long size, long stamp) {
        int slot = claim();
        int at = slot * WORDS;
        digests[at] = a;
        digests[at + 1] = b;
        digests[at + 2] = c;
        digests[at + 3] = d;
        bytes[slot] = size;
        held[slot] = true;
        scans[slot] = 0;
        readable(slot);
        persisted[slot] = 0;
        int bucket = bucket(a);
        chain[slot] = buckets[bucket];
        buckets[bucket] = slot;
        link(slot, stamp);
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
        held[slot] = false;
        chain[slot] = free;
        free = slot;
    }

    /// Slots that were ever used; for a walk through all of them, in the order of the memory, which
    /// is much faster than one in the order of use.
    int slots() {
        return used;
    }

    /// Whether a slot holds a file.
    boolean holds(int slot) {
        return held[slot];
    }

    long stamp(int slot) {
        return stamps[slot];
    }

    /// Moves the slot to its place by a new time of use.
    void touch(int slot, long stamp) {
        if (stamp != stamps[slot]) {
            unlink(slot);
            link(slot, stamp);
        }
    }

    /// The stamp that the file carries, as far as known; 0 when it is not.
    long persisted(int slot) {
        return persisted[slot];
    }

    void persisted(int slot, long stamp) {
        persisted[slot] = stamp;
    }

    void resize(int slot, long size) {
        totalBytes += size - bytes[slot];
        bytes[slot] = size;
    }

    /// The least recently used slot.
    int oldest() {
        return oldest;
    }

    KeyDigest digest(int slot) {
        int at = slot * WORDS;
        return new KeyDigest(digests[at], digests[at + 1], digests[at + 2], digests[at + 3]);
    }

    long firstWord(int slot) {
        return digests[slot * WORDS];
    }

    /// The same without an object.
    void digest(int slot, long[] out) {
        System.arraycopy(digests, slot * WORDS, out, 0, WORDS);
    }

    long bytes(int slot) {
        return bytes[slot];
    }

    long verifiedAt(int slot) {
        return verifiedAt[slot];
    }

    void verifiedAt(int slot, long nanoTime) {
        verifiedAt[slot] = nanoTime;
    }

    /// The file was written or read well.
    void readable(int slot) {
        allow(slot);
        suppressions[slot] = 0;
    }

    /// The file may be read again.
    void allow(int slot) {
        suppressed[slot] = false;
        unreadable[slot] = false;
    }

    /// Whether the file cannot be read until it is written again.
    boolean unreadable(int slot) {
        return unreadable[slot];
    }

    void markUnreadable(int slot) {
        unreadable[slot] = true;
    }

    boolean suppressed(int slot, long now) {
        return suppressed[slot] && suppressedUntil[slot] - now > 0;
    }

    /// Whether all that is known of the file is that a read of it failed: it may be gone.
    boolean neverSeen(int slot) {
        return suppressed[slot] && bytes[slot] == 0;
    }

    /// Suppressions in a row, up to now.
    int suppressions(int slot) {
        return suppressions[slot];
    }

    /// Of one that was suppressed.
    long suppressedUntil(int slot) {
        return suppressedUntil[slot];
    }

    void suppress(int slot, long untilNanoTime) {
        suppressed[slot] = true;
        suppressedUntil[slot] = untilNanoTime;
        suppressions[slot] = (byte) Math.min(suppressions[slot] + 1, Byte.MAX_VALUE);
    }

    /// Puts what is known of failed reads into `victim`.
    void failures(int slot, Victim victim) {
        victim.unreadable = unreadable[slot];
        victim.suppressed = suppressed[slot];
        victim.suppressedUntil = suppressedUntil[slot];
        victim.suppressions = suppressions[slot];
    }

    /// Takes what `victim` knows of failed reads, beside what is known already.
    void addFailures(int slot, Victim victim) {
        unreadable[slot] |= victim.unreadable;
        if (victim.suppressed
                && (!suppressed[slot] || victim.suppressedUntil - suppressedUntil[slot] > 0)) {
            suppressed[slot] = true;
            suppressedUntil[slot] = victim.suppressedUntil;
        }
        suppressions[slot] = (byte) Math.max(suppressions[slot], victim.suppressions);
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

    /// Where there is no memory for it, nothing has changed: every array is made before one is
    /// used.
    private void grow() {
        int capacity = grown(bytes.length);
        long[] newDigests = Arrays.copyOf(digests, Math.multiplyExact(capacity, WORDS));
        long[] newBytes = Arrays.copyOf(bytes, capacity);
        long[] newVerifiedAt = Arrays.copyOf(verifiedAt, capacity);
        long[] newSuppressedUntil = Arrays.copyOf(suppressedUntil, capacity);
        boolean[] newSuppressed = Arrays.copyOf(suppressed, capacity);
        byte[] newSuppressions = Arrays.copyOf(suppressions, capacity);
        boolean[] newUnreadable = Arrays.copyOf(unreadable, capacity);
        long[] newStamps = Arrays.copyOf(stamps, capacity);
        long[] newPersisted = Arrays.copyOf(persisted, capacity);
        boolean[] newHeld = Arrays.copyOf(held, capacity);
        int[] newScans = Arrays.copyOf(scans, capacity);
        int[] newNewer = Arrays.copyOf(newer, capacity);
        int[] newOlder = Arrays.copyOf(older, capacity);
        int[] newChain = Arrays.copyOf(chain, capacity);
        buckets = buckets(capacity);
        digests = newDigests;
        bytes = newBytes;
        verifiedAt = newVerifiedAt;
        suppressedUntil = newSuppressedUntil;
        suppressed = newSuppressed;
        suppressions = newSuppressions;
        unreadable = newUnreadable;
        stamps = newStamps;
        persisted = newPersisted;
        held = newHeld;
        scans = newScans;
        newer = newNewer;
        older = newOlder;
        chain = newChain;
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

    /// Links behind the last slot that is not newer.
    private void link(int slot, long stamp) {
        stamps[slot] = stamp;
        int before = newest == NONE || stamps[newest] <= stamp ? newest : lastNotNewer(stamp);
        int after = before == NONE ? oldest : newer[before];
        older[slot] = before;
        newer[slot] = after;
        if (before == NONE) {
            oldest = slot;
        } else {
            newer[before] = slot;
        }
        if (after == NONE) {
            newest = slot;
        } else {
            older[after] = slot;
        }
    }

    /// The last slot that is not newer than `stamp`, or NONE when all are newer. To be called only
    /// while the newest slot is newer.
    ///
    /// The search goes from three places at a time: from both ends, because what is touched is
    /// nearly always one of the newest and what is new here may also be the oldest, and from where
    /// the last long search ended. Files that a scan found come in the order of their times, so
    /// that all of them together take one walk through the list, also while newer ones are touched.
    private int lastNotNewer(long stamp) {
        if (stamps[oldest] > stamp) {
            return NONE;
        }
        int down = newest;
        int up = oldest;
        int near = searched == NONE ? oldest : searched;
        for (int steps = 0; ; steps++) {
            boolean below = stamps[near] <= stamp;
            int next = below ? newer[near] : older[near];
            if (below != (stamps[next] <= stamp)) {
                return searched = below ? near : next;
            }
            near = next;
            down = older[down];
            if (stamps[down] <= stamp) {
                return steps < FEW ? down : (searched = down);
            }
            next = newer[up];
            if (stamps[next] > stamp) {
                return steps < FEW ? up : (searched = up);
            }
            up = next;
        }
    }

    private void unlink(int slot) {
        if (searched == slot) {
            searched = older[slot]; // none where it was the oldest
        }
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

    /// One to two for each slot, and a power of two. The capacity after this one.
    static int grown(int capacity) {
        return Math.addExact(capacity, capacity / 2);
    }

    private static int[] buckets(int capacity) {
        int[] array = new int[Integer.highestOneBit(capacity) * 2];
        Arrays.fill(array, NONE);
        return array;
    }
}
