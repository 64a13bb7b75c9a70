// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

/// Direction of a transfer, seen from the initiator.
public enum Operation {
    /// Remote to local.
    READ,
    /// Local to remote.
    WRITE
}
