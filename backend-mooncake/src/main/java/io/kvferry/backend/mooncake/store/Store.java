// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/// A store as one of its users sees it: immutable objects under keys that are unique within the
/// user's [StoreIdentity]. Single calls are batches of one.
///
/// Calls block until the bytes are moved, and answer one number per key: 0, a count, or a
/// [StoreCode], which is negative. Batches are not atomic. A call on a closed store answers
/// UNAVAILABLE_IN_CURRENT_STATUS for every key. An interrupt ends a call that waits for another
/// process or for a disk: its keys fail, and what their buffers hold changes no more.
///
/// Threading: any thread.
public interface Store extends AutoCloseable {
    /// What not every store can do. Where it is missing, the call answers NOT_SUPPORTED or leaves
    /// the option out, as the constant says.
    enum Feature {
        /// [#describe]; else NOT_SUPPORTED.
        DESCRIPTORS,
        /// Groups of [StoreBatch#add]; else they are ignored.
        GROUPS,
        /// [#exists] without a lease; else it grants one.
        EXISTS_WITHOUT_LEASE,
        /// Tenants are kept apart; else all users have one name space.
        TENANTS,
        /// Lookups are answered at once, without a look beyond this process. Without it they are
        /// not for threads that must not wait.
        IN_PROCESS,
        /// [#removals]; without it nothing is ever listed.
        REMOVALS
    }

    /// Objects of this identity that went.
    ///
    /// @param all whether more went than were noted: then any object may be gone
    /// @param keys those that were noted, in order
    record Removals(boolean all, List<String> keys) {
        /// Nothing went.
        public static final Removals NONE = new Removals(false, List.of());

        public Removals {
            keys = List.copyOf(keys);
        }
    }

    Set<Feature> features();

    /// Announces memory from or into which objects are moved. Counted by base address, so the same
    /// memory can be registered twice. Other memory works too, is slower in some stores, and is
    /// warned of once.
    ///
    /// @return 0, or INVALID_PARAMS for memory that is not native
    int register(MemorySegment memory);

    /// Ends one [#register].
    ///
    /// @return 0, or INVALID_PARAMS for memory that is not registered
    int unregister(MemorySegment memory);

    /// Stores the objects. An object that exists already, or that another user is writing, is left
    /// as it is and counts as stored.
    ///
    /// @param results per key 0; INVALID_PARAMS for an empty key, an object without bytes or
    ///   invalid options; NO_AVAILABLE_HANDLE when there is no room ([#noRoom] says why)
    void put(StoreBatch batch, PutOptions options, int[] results);

    /// Copies the objects into the buffers and grants each a lease.
    ///
    /// @param results per key the bytes of the object; OBJECT_NOT_FOUND; REPLICA_IS_NOT_READY while
    ///   it is being written; INVALID_PARAMS where the buffers are smaller than the object;
    ///   LEASE_EXPIRED when the copy took longer than the lease; CHECKSUM_MISMATCH. What the
    ///   buffers of a failed key hold is not defined
    void get(StoreBatch batch, long[] results);

    /// Which objects can be read.
    ///
    /// @param lease whether those found are granted a lease, as Mooncake always does. Wide lookups
    ///   that lease everything keep the store from evicting anything; without a lease an object
    ///   counts as used just now, and can be evicted at once
    /// @param results per key 1, 0, or a code
    void exists(List<String> keys, boolean lease, int[] results);

    /// Where the objects are; grants leases.
    ///
    /// @param found per key the replica, or null
    /// @param results per key 0 or a code as of [#get]
    void describe(List<String> keys, @Nullable ReplicaDescriptor[] found, int[] results);

    /// Bytes of an object, or a code as of [#get]. Grants a lease.
    long size(String key);

    /// Removes an object.
    ///
    /// @param force also one with a lease
    /// @return 0; OBJECT_NOT_FOUND; OBJECT_HAS_LEASE; REPLICA_IS_NOT_READY while it is being
    ///   written; FILE_WRITE_FAIL when a restart of the store may find it, or what was removed
    ///   before, again
    int remove(String key, boolean force);

    /// Removes the objects whose whole key the regular expression matches; leaves out leased ones
    /// unless forced, and those that are being written.
    ///
    /// @return how many; INVALID_PARAMS for an expression that is none or takes too long;
    ///   FILE_WRITE_FAIL when a restart of the store may find some of them again
    long removeByRegex(String regex, boolean force);

    /// Removes all objects of this identity, as [#removeByRegex].
    long removeAll(boolean force);

    /// Why the last put of this store found no room, for messages; empty when that never happened.
    String noRoom();

    /// What was evicted, removed or lost since the last call. The first call begins the list. Never
    /// waits.
    Removals removals();

    /// What the memory of the store is used for, as it was a second or so ago; empty as long as
    /// that is not known. Never waits.
    Optional<StoreUsage> usage();

    /// 0 while the store works, else a code. Never waits.
    int healthCheck();

    /// Ends this use of the store; the objects stay.
    @Override
    void close();
}
