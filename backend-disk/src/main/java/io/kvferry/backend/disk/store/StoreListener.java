// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.toolkit.disk.space.KeyDigest;

/// Told which blocks this process put into the store or found gone.
///
/// Threading: called on I/O and janitor threads, outside every lock; must not block or throw.
public interface StoreListener {
    /// Ignores everything.
    StoreListener NONE = new StoreListener() {};

    /// This process published the block.
    default void stored(BlockKey key) {}

    /// The block was evicted, deleted as corrupt, or found to be deleted by another process.
    default void removed(KeyDigest digest) {}
}
