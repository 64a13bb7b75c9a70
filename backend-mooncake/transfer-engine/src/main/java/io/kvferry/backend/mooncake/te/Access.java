// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

/// The access of peers to registered memory.
public enum Access {
    /// Read and write all of it at any time, as with Mooncake.
    OPEN,

    /// As [#OPEN], for peers that name [TransferEngine#memoryKey] only.
    KEYED,

    /// Peers may write what an open [WriteGrant] covers, and nothing else. No peer may read.
    GRANTED
}
