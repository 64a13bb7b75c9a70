// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable.Grant;

import org.jspecify.annotations.Nullable;

/// The access of a peer that names no capability, as all but kvferry peers: reads and writes of
/// open memory, and writes into memory that a grant for any peer covers.
///
/// Threading: the thread of one connection.
public final class UnnamedAccess {
    private final GrantTable grants;
    private final GateSet held;

    /// Peers send the pieces of one transfer one behind the other.
    private @Nullable Grant last;

    /// Of the access that was permitted last; null for open memory.
    private @Nullable Grant current;

    /// @param held gets the gate of the grant that a write is under
    public UnnamedAccess(GrantTable grants, GateSet held) {
        this.grants = grants;
        this.held = held;
    }

    public boolean permits(Region region, long address, long bytes, boolean write) {
        current = null;
        if (region.access == Access.OPEN) {
            return true;
        }
        if (!write) {
            return false;
        }
        last = grants.enterUnnamed(held, address, bytes, last);
        current = last;
        return last != null;
    }

    /// The grant of the write that was permitted last, null for one into open memory.
    public @Nullable Grant grant() {
        return current;
    }

    /// A write was not permitted.
    ///
    /// @param receipt whether its sender is told
    public void refused(long address, long bytes, boolean receipt) {
        grants.refused(address, bytes, receipt);
    }
}
