// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.Store.Removals;
import io.kvferry.backend.mooncake.store.StoreIdentity;

import java.util.ArrayList;
import java.util.List;

/// Objects of one identity that could be read and have gone, for one user who follows that.
/// Bounded: who does not take them hears that there were too many.
///
/// Threading: any thread; its monitor is taken inside of shard locks and holds no other.
final class RemovalLog {
    static final int MOST = 1 << 16;

    private final StoreIdentity identity;
    private List<String> keys = new ArrayList<>();
    private boolean tooMany;

    RemovalLog(StoreIdentity identity) {
        this.identity = identity;
    }

    @SuppressWarnings("ReferenceEquality") // one object per identity and store
    void removed(StoredObject object) {
        if (object.identity == identity) {
            add(object.key);
        }
    }

    private synchronized void add(String key) {
        if (keys.size() < MOST) {
            keys.add(key);
        } else {
            tooMany = true;
        }
    }

    synchronized Removals drain() {
        if (keys.isEmpty() && !tooMany) {
            return Removals.NONE;
        }
        var drained = new Removals(tooMany, tooMany ? List.of() : keys);
        keys = new ArrayList<>();
        tooMany = false;
        return drained;
    }
}
