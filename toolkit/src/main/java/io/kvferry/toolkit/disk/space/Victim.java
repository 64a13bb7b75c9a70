// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

/// A file that [SpaceCatalog#oldest] chose for eviction; filled again and again by the one thread
/// that evicts.
///
/// Threading: the thread that has the lock of evictions.
public final class Victim {
    final long[] words = new long[4];
    long stamp;
    long persisted;
    long bytes;
    boolean reserved;

    /// What was known of failed reads when [SpaceCatalog#evict] took it out.
    boolean unreadable;

    boolean suppressed;
    long suppressedUntil;
    byte suppressions;

    public KeyDigest digest() {
        return new KeyDigest(words[0], words[1], words[2], words[3]);
    }

    /// Word `i` of the digest, without an object.
    public long word(int i) {
        return words[i];
    }

    /// Its time of use as this process knows it, see [Recency].
    public long stamp() {
        return stamp;
    }

    /// The time of use that the file carried when this process last knew.
    public long persisted() {
        return persisted;
    }

    /// Bytes that its deletion frees, as far as known.
    public long bytes() {
        return bytes;
    }

    /// Whether its eviction made the room that was asked for, which is reserved then.
    public boolean reserved() {
        return reserved;
    }
}
