// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

/// The meaning of a completed WRITE. A completed READ is always [#APPLIED].
public enum Guarantee {
    /// The bytes are in the destination memory.
    APPLIED,
    /// The bytes have left; a peer of protocol version 1 sends no receipt.
    SENT
}
