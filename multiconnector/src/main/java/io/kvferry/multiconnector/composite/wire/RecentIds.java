// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.wire;

import io.kvferry.spi.kv.TransferId;

import java.util.LinkedHashSet;

/// The last few thousand ids of children's transfers that ended before the composite knew them. For
/// example, a child's hold may already have ended when `finish` returns it.
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
