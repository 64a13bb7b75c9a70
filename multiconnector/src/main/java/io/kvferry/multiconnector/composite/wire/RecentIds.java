// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.wire;

import io.kvferry.spi.kv.TransferId;

import java.util.LinkedHashSet;

/// Transfers of children that ended before anybody knew of them, the latest few thousand: a child
/// may have nothing left to do for a hold when it answers it.
public final class RecentIds {
    private static final int REMEMBERED = 8192;

    private final LinkedHashSet<TransferId> ids = new LinkedHashSet<>();

    public void add(TransferId id) {
        if (ids.add(id) && ids.size() > REMEMBERED) {
            ids.removeFirst();
        }
    }

    /// @return whether it was there
    public boolean remove(TransferId id) {
        return ids.remove(id);
    }
}
