// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.block;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

/// How one request to the store ended.
public sealed interface BlockResult {
    /// The ways to end well.
    enum Done implements BlockResult {
        /// The block was written and is readable by every process, as durable as the store was
        /// configured.
        STORED,
        /// The block was there already; nothing was written.
        PRESENT,
        /// All segments are filled and the checksum was right.
        LOADED
    }

    /// Answer of a lookup: so many keys from the front of the list are there.
    record Located(int count) implements BlockResult {}

    /// The request did not succeed. What the target of a load holds then must not be used.
    ///
    /// Codes: [ErrorCode#MISS], [ErrorCode#CORRUPT] (the file is deleted if it can be),
    /// [ErrorCode#INCOMPATIBLE] (another size than saved), [ErrorCode#TIMEOUT],
    /// [ErrorCode#NO_SPACE], [ErrorCode#STORAGE_IO], [ErrorCode#NO_MEMORY], [ErrorCode#CLOSED],
    /// [ErrorCode#INTERNAL].
    record Failed(Failure failure) implements BlockResult {
        public static Failed of(ErrorCode code, String message) {
            return new Failed(new Failure(code, message));
        }
    }

    /// The failure code, for counting and branching.
    default boolean failedWith(ErrorCode code) {
        return this instanceof Failed(Failure failure) && failure.code() == code;
    }
}
