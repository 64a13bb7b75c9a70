// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import io.kvferry.spi.memory.MemoryKind;

/// One thing a backend can do: an operation between two kinds of memory, within one agent or
/// between two.
public record Route(Operation operation, MemoryKind local, MemoryKind remote, Scope scope) {
    /// Where the "remote" side of a transfer lives.
    public enum Scope {
        /// In the same agent: a file, an object, or memory of its own.
        LOOPBACK,
        /// In another agent.
        REMOTE
    }
}
