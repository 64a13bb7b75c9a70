// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.toolkit.disk.space.KeyDigest;

/// Told which blocks are gone.
///
/// Threading: called on I/O and janitor threads and on those that call [BlockStore#scan] or
/// [BlockStore#clear], partly while evictions or scans of this process wait; must not block, throw
/// or call the store.
public interface StoreListener {
    /// Ignores everything.
    StoreListener NONE = _ -> {};

    /// The block was evicted, deleted as corrupt, or found to be deleted by another process.
    void removed(KeyDigest digest);
}
