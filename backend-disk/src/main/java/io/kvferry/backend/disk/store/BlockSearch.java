// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockKey;

/// A lookup that chooses the next key depending on what it has found.
///
/// Threading: called once, on an I/O thread by [BlockStore#locate], on the caller's by
/// [BlockStore#known]; must not block.
@FunctionalInterface
public interface BlockSearch {
    /// Answers one lookup's questions.
    interface Finder {
        /// Whether the block is on disk, asking the file system unless it was seen lately. False
        /// for a block whose read failed lately, and for every block once the deadline has passed.
        boolean isThere(BlockKey key);

        /// As [#isThere], for a block that will not be loaded now: the file system is asked only if
        /// the catalog has the block, to detect a stale entry, which would prevent a deleted block
        /// from being saved again.
        boolean isStillThere(BlockKey key);

        /// Notes that the block is in use now. Of a prefix the deepest comes first. False when it
        /// was evicted since it was found.
        boolean use(BlockKey key);
    }

    /// @return what the lookup's callback gets as [BlockResult.Located]
    int search(Finder finder);
}
