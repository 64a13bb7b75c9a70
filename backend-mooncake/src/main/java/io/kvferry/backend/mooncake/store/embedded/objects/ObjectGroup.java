// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import io.kvferry.backend.mooncake.store.StoreIdentity;

import java.util.ArrayList;
import java.util.List;

/// Objects that are evicted together: the parts of one block that ranks and cache groups store
/// under keys of their own.
///
/// Threading: its own monitor; taken inside of shard locks.
public final class ObjectGroup {
    /// @param identity of all members
    public record Name(StoreIdentity identity, String group) {
        // Written by hand, as those of StoreIdentity: a removal looks its group up.
        @Override
        public boolean equals(Object other) {
            return other instanceof Name name
                    && group.equals(name.group)
                    && identity.equals(name.identity);
        }

        @Override
        public int hashCode() {
            return 31 * identity.hashCode() + group.hashCode();
        }
    }

    /// The group (40), its name (24), its lists (72), its node in the table (48), its lock.
    private static final long GROUP_HEAP = 232;

    public final Name name;
    private final List<StoredObject> members = new ArrayList<>(4);
    private volatile long lease;
    private boolean closed;
    private boolean counted;

    ObjectGroup(Name name) {
        this.name = name;
    }

    /// What it costs on the heap beside its members.
    public static long heapBytes(String name) {
        return GROUP_HEAP + StoredObject.textHeap(name);
    }

    /// When the lease that its members share ends.
    long lease() {
        return lease;
    }

    /// A member was leased: all of them are, unless that is recent.
    public synchronized void extend(long now, long ttl) {
        if (lease - now <= ttl / 2) {
            lease = Math.max(lease, now + ttl);
        }
    }

    /// Adds a member; false when the group has gone meanwhile.
    public synchronized boolean add(StoredObject member) {
        if (!closed) {
            member.place = members.size();
            members.add(member);
        }
        return !closed;
    }

    /// Takes a member out; the last one gets its place.
    ///
    /// @return whether it was the last one, and the group has gone
    public synchronized boolean remove(StoredObject member) {
        StoredObject last = members.removeLast();
        if (last != member) {
            members.set(member.place, last);
            last.place = member.place;
        }
        closed = closed || members.isEmpty();
        return closed;
    }

    /// Sets whether it is counted in the heap budget.
    ///
    /// @return whether that was not so before
    synchronized boolean count(boolean now) {
        boolean changed = counted != now;
        counted = now;
        return changed;
    }

    /// Closes a group that has no member.
    ///
    /// @return whether it has gone
    synchronized boolean closeIfEmpty() {
        closed = closed || members.isEmpty();
        return closed;
    }

    public synchronized List<StoredObject> members() {
        return List.copyOf(members);
    }
}
