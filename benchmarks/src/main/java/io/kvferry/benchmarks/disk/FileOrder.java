// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.toolkit.disk.space.KeyDigest;
import io.kvferry.toolkit.disk.space.Recency;
import io.kvferry.toolkit.disk.space.SpaceCatalog;
import io.kvferry.toolkit.disk.space.Victim;

import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;

/// Files in the order of their last use, with what the block store has to know of each.
///
/// Threading: each is guarded by its own monitor, as in the store.
interface FileOrder {
    /// Adds a file that is not there.
    ///
    /// @param time of its last use, in milliseconds
    void insert(KeyDigest digest, long time);

    /// Notes a use later than all before.
    void use(KeyDigest digest, long time);

    /// Takes out the file used longest ago.
    void evict();

    enum Kind {
        CATALOG("SpaceCatalog"),
        LINKED("LinkedHashMap, by access"),
        TREE("HashMap and TreeMap");

        private final String text;

        Kind(String text) {
            this.text = text;
        }

        FileOrder make() {
            return switch (this) {
                case CATALOG -> new Catalog();
                case LINKED -> new Linked();
                case TREE -> new Tree();
            };
        }

        /// Whether a file can be put in whose last use is not the latest.
        boolean sorts() {
            return this != LINKED;
        }

        @Override
        public String toString() {
            return text;
        }
    }

    /// The block store's own.
    final class Catalog implements FileOrder {
        private final SpaceCatalog catalog =
                new SpaceCatalog(Long.MAX_VALUE / 2, 0, 0, 0, 0, new Recency(60_000));
        private final Victim victim = new Victim();
        private long latest;

        @Override
        public void insert(KeyDigest digest, long time) {
            latest = Math.max(latest, time);
            catalog.discovered(digest, 4096, 0, Recency.stamp(time, 0), latest, 1);
        }

        @Override
        public void use(KeyDigest digest, long time) {
            latest = Math.max(latest, time);
            catalog.touch(digest, Recency.stamp(time, 0));
        }

        @Override
        public void evict() {
            if (!catalog.oldest(victim) || !catalog.evict(victim, 0)) {
                throw new IllegalStateException("nothing to evict");
            }
            catalog.evicted();
        }
    }

    /// What the catalog holds per file.
    final class Entry {
        final KeyDigest digest;
        long bytes = 4096;
        long verifiedAt;
        long suppressedUntil;
        boolean suppressed;
        byte suppressions;
        boolean unreadable;
        long time;
        long persisted;
        int pins;
        int scan;

        Entry(KeyDigest digest, long time) {
            this.digest = digest;
            this.time = time;
        }
    }

    /// An access-ordered map, which knows no time but the present.
    final class Linked implements FileOrder {
        private final Map<KeyDigest, Entry> entries = new LinkedHashMap<>(16, 0.75f, true);

        @Override
        public synchronized void insert(KeyDigest digest, long time) {
            entries.put(digest, new Entry(digest, time));
        }

        @Override
        public synchronized void use(KeyDigest digest, long time) {
            Entry entry = entries.get(digest);
            if (entry != null) {
                entry.time = time;
            }
        }

        @Override
        public synchronized void evict() {
            var all = entries.keySet().iterator();
            all.next();
            all.remove();
        }
    }

    /// A tree for the order.
    final class Tree implements FileOrder {
        private final Map<KeyDigest, Entry> entries = new HashMap<>();
        private final TreeMap<Entry, Entry> order =
                new TreeMap<>(
                        Comparator.comparingLong((Entry entry) -> entry.time)
                                .thenComparingLong(entry -> entry.digest.a())
                                .thenComparingLong(entry -> entry.digest.b()));

        @Override
        public synchronized void insert(KeyDigest digest, long time) {
            var entry = new Entry(digest, time);
            entries.put(digest, entry);
            order.put(entry, entry);
        }

        @Override
        public synchronized void use(KeyDigest digest, long time) {
            Entry entry = entries.get(digest);
            if (entry != null) {
                order.remove(entry);
                entry.time = time;
                order.put(entry, entry);
            }
        }

        @Override
        public synchronized void evict() {
            entries.remove(order.firstKey().digest);
            order.pollFirstEntry();
        }
    }
}
