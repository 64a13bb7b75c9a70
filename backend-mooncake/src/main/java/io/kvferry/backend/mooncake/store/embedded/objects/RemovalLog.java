// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import io.kvferry.backend.mooncake.store.RemovedKeys;
import io.kvferry.backend.mooncake.store.Store.Removals;
import io.kvferry.backend.mooncake.store.StoreIdentity;

/// Objects of one identity that could be read and have gone, for one user who follows that.
///
/// Threading: any thread; called inside of shard locks.
public final class RemovalLog {
    private final StoreIdentity identity;
    private final RemovedKeys keys = new RemovedKeys();

    public RemovalLog(StoreIdentity identity) {
        this.identity = identity;
    }

    @SuppressWarnings("ReferenceEquality") // one object per identity and store
    void removed(StoredObject object) {
        if (object.identity == identity) {
            keys.add(object.key);
        }
    }

    public Removals drain() {
        return keys.drain();
    }
}
