// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockResult;

/// Called once, when a request has ended.
///
/// Threading: called on an I/O thread or on the store's deadline thread; it must not block, call
/// back into [BlockStore#close], or throw. When it is called the store no longer writes to the
/// memory of the request, and the caller may free it or use it again. A save that timed out while a
/// system call hangs may still read it; what it reads is never published.
@FunctionalInterface
public interface BlockCallback {
    /// @param tag the number that the caller gave with the request
    void completed(long tag, BlockResult result);
}
