// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import java.lang.foreign.MemorySegment;

/// An object on its way from disk, in memory of the tier.
///
/// Threading: one thread.
public interface StagedRead extends AutoCloseable {
    /// Waits for its bytes, no longer than one read may take.
    ///
    /// @return 0, or a negated [Errno]; EBADMSG for bytes that are not those that were written
    int await();

    /// The bytes, where [#await] answered 0; valid until this is closed.
    MemorySegment value();

    @Override
    void close();
}
