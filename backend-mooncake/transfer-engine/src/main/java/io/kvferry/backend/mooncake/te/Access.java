// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

/// The access of peers to registered memory.
public enum Access {
    /// Read and write all of it at any time, as with Mooncake.
    OPEN,

    /// As [#OPEN], for peers that name [TransferEngine#memoryKey] only.
    KEYED,

    /// Write what a [WriteGrant] covers while that is open, and nothing else. Nobody reads it.
    GRANTED
}
