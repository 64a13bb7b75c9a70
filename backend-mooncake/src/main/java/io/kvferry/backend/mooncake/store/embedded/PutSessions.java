// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.util.List;

/// Puts in three steps, for who moves the bytes by means of its own: ask for room, write, say that
/// it is complete.
///
/// Threading: any thread.
public interface PutSessions {
    /// A put that was started.
    ///
    /// @param number tells it from other puts of the same key
    /// @param memory where the bytes go; valid until the put ends, is revoked or replaced
    record Started(String key, long number, ReplicaDescriptor replica, MemorySegment memory) {}

    /// Makes room for objects.
    ///
    /// @param groups as long as `keys`, null where an object has none; or empty
    /// @param started per key the put, or null
    /// @param results per key 0; OBJECT_ALREADY_EXISTS when it is there, or another put of it began
    ///   less than `putDiscard` ago; else as `Store.put`
    void putStart(
            List<String> keys,
            long[] sizes,
            List<@Nullable String> groups,
            PutOptions options,
            @Nullable Started[] started,
            int[] results);

    /// The bytes are there: from now on the object can be read. Idempotent.
    ///
    /// @param number of the put
    /// @param checksum CRC32C of the bytes; 0 where the store keeps none
    /// @return 0; OBJECT_NOT_FOUND; ILLEGAL_CLIENT when another client writes it; INVALID_WRITE
    ///   when another put of this client has replaced this one
    int putEnd(String key, long number, int checksum);

    /// Gives a put up.
    ///
    /// @return 0; INVALID_WRITE when it is complete; else as [#putEnd]
    int putRevoke(String key, long number);
}
