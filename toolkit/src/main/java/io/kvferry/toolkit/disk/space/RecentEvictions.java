// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

/// The last evictions of this process by digest, so that a look at the disk which overlaps with one
/// does not bring its file back: the look may have seen the file before it was deleted.
///
/// Threading: none of its own; [SpaceCatalog] guards it.
final class RecentEvictions {
    private static final int REMEMBERED = 256;
    private static final int WORDS = 4;

    private final long[] digests = new long[REMEMBERED * WORDS];
    private long begun;
    private int open;

    /// @param words of the digest
    void begin(long[] words) {
        System.arraycopy(words, 0, digests, (int) (begun % REMEMBERED) * WORDS, WORDS);
        begun++;
        open++;
    }

    /// The file of one that began is gone.
    void end() {
        open--;
    }

    /// How many are over, for [#since].
    long over() {
        return begun - open;
    }

    /// Whether the file was, or may have been, evicted since so many evictions were over.
    boolean since(KeyDigest digest, long over) {
        if (begun - over > REMEMBERED) {
            return true; // too long a look to be sure; the next one decides
        }
        for (long i = over; i < begun; i++) {
            int at = (int) (i % REMEMBERED) * WORDS;
            if (digests[at] == digest.a()
                    && digests[at + 1] == digest.b()
                    && digests[at + 2] == digest.c()
                    && digests[at + 3] == digest.d()) {
                return true;
            }
        }
        return false;
    }
}
