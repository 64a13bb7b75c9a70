// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.toolkit.memory.FullHeap;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;

/// A catalog that grows in a process whose heap is full: whatever of its arrays there is no memory
/// for, no room of the quota is lost, and it goes on once there is memory.
class NoMemoryForCatalogTest {
    @TempDir Path folder;

    @Test
    void losesNoRoomAndGoesOnWhereverMemoryEnds() throws Exception {
        assertThat(FullHeap.run(folder, 48, Duration.ofSeconds(120), Child.class))
                .last()
                .asString()
                .matches("out of memory in [1-9]\\d+ of \\d+ tries");
    }

    static final class Child {
        private static final int LEAST_FILES = 1 << 14;

        /// The next file needs larger arrays, of a few MB together.
        private static final int FILES = fullCapacity();

        private static final int PIECE = 32 << 10;
        private static final int TRIES = 100;
        private static final long QUOTA = 2L * FILES;

        private Child() {}

        private static int fullCapacity() {
            int capacity = RecencyIndex.FIRST_CAPACITY;
            while (capacity < LEAST_FILES) {
                capacity = RecencyIndex.grown(capacity);
            }
            return capacity;
        }

        public static void main(String[] args) {
            int failures = 0;
            for (int left = 0; left < TRIES; left++) {
                var catalog = new SpaceCatalog(QUOTA, 0, 0, 0, 0, new Recency(60_000));
                for (int i = 0; i < FILES; i++) {
                    catalog.confirm(key(i), 1, 0, i);
                }
                failures += tryWith(catalog, left) ? 0 : 1;
            }
            System.out.println("out of memory in " + failures + " of " + TRIES + " tries");
        }

        private static KeyDigest key(int i) {
            return new KeyDigest(i * 0x9E3779B97F4A7C15L, i, 0, 0);
        }

        /// Commits a file where only so many pieces of memory are left; answers whether that went
        /// well.
        private static boolean tryWith(SpaceCatalog catalog, int piecesLeft) {
            var first = key(FILES);
            catalog.reserve(1);
            var ballast = new ArrayDeque<byte[]>();
            boolean committed = false;
            try {
                while (true) {
                    ballast.add(new byte[PIECE]);
                }
            } catch (OutOfMemoryError _) {
                for (int i = 0; i < piecesLeft && !ballast.isEmpty(); i++) {
                    ballast.remove();
                }
            }
            try {
                catalog.commit(first, 1, 0, FILES);
                committed = true;
            } catch (OutOfMemoryError _) {
                catalog.release(1); // as who saves does
            }
            ballast.clear();
            long rest = QUOTA - catalog.usedBytes();
            check(catalog.reserve(rest), "a reservation is left");
            catalog.release(rest);
            check(
                    catalog.usedBytes() == FILES + (committed ? 1 : 0),
                    "used " + catalog.usedBytes());
            for (int i = FILES; i < FILES + 10; i++) {
                check(catalog.reserve(1), "no room");
                catalog.commit(key(i), 1, 0, i);
            }
            for (int i = 0; i < FILES + 10; i++) {
                check(catalog.contains(key(i)), "lost file " + i);
            }
            check(catalog.usedBytes() == FILES + 10, "used " + catalog.usedBytes());
            return committed;
        }

        private static void check(boolean holds, String what) {
            if (!holds) {
                throw new IllegalStateException(what);
            }
        }
    }
}
