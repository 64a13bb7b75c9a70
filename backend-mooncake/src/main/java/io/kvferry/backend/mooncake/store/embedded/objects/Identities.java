// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import io.kvferry.backend.mooncake.store.StoreIdentity;

import java.lang.ref.WeakReference;
import java.util.Set;
import java.util.WeakHashMap;

/// The identities of a store, one instance each, for as long as a user, an object or a copy on disk
/// refers to it.
///
/// Threading: any thread.
public final class Identities {
    private final WeakHashMap<StoreIdentity, WeakReference<StoreIdentity>> known =
            new WeakHashMap<>();

    /// The one object for an identity.
    public synchronized StoreIdentity intern(StoreIdentity identity) {
        WeakReference<StoreIdentity> reference = known.get(identity);
        StoreIdentity one = reference == null ? null : reference.get();
        if (one == null) {
            one = identity;
            known.put(one, new WeakReference<>(one));
        }
        return one;
    }

    /// All identities that are in use. May include some that no longer are.
    public synchronized Set<StoreIdentity> all() {
        return Set.copyOf(known.keySet());
    }
}
