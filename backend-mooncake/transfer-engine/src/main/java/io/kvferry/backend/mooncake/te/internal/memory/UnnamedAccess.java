// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable.Grant;

import org.jspecify.annotations.Nullable;

/// What a peer may do that names no capability, as all but kvferry peers: anything with memory that
/// is open, and writes into what a grant for any peer covers.
///
/// Threading: the thread of one connection.
public final class UnnamedAccess {
    private final GrantTable grants;
    private final GateSet held;

    /// Peers send the pieces of one transfer one behind the other.
    private @Nullable Grant last;

    /// @param held gets the gate of the grant that a write is under
    public UnnamedAccess(GrantTable grants, GateSet held) {
        this.grants = grants;
        this.held = held;
    }

    public boolean permits(Region region, long address, long bytes, boolean write) {
        if (region.access == Access.OPEN) {
            return true;
        }
        if (!write) {
            return false;
        }
        last = grants.enterUnnamed(held, address, bytes, last);
        return last != null;
    }
}
