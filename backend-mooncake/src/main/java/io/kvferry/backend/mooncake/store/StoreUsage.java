// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store;

/// What the memory of a store is used for at one moment, in bytes of objects where nothing else is
/// said. An object can be in several of the figures from `leased` to `busy`.
///
/// @param capacity of all segments
/// @param used ranges that are taken, with their rounding
/// @param largestFree longest free range of a segment
/// @param objects that can be read
/// @param stored bytes of those
/// @param leased bytes that a lease keeps
/// @param softPinned bytes that a soft pin keeps for now
/// @param hardPinned bytes that are never evicted
/// @param busy bytes that are being copied
/// @param evictable bytes that an eviction could take right now, soft-pinned ones not counted
/// @param writing bytes of puts that are not complete
/// @param discarded bytes of puts that were replaced, and whose writer may still write
public record StoreUsage(
        long capacity,
        long used,
        long largestFree,
        long objects,
        long stored,
        long leased,
        long softPinned,
        long hardPinned,
        long busy,
        long evictable,
        long writing,
        long discarded) {
    /// Of this memory and other memory beside it.
    public StoreUsage plus(StoreUsage other) {
        return new StoreUsage(
                capacity + other.capacity,
                used + other.used,
                Math.max(largestFree, other.largestFree),
                objects + other.objects,
                stored + other.stored,
                leased + other.leased,
                softPinned + other.softPinned,
                hardPinned + other.hardPinned,
                busy + other.busy,
                evictable + other.evictable,
                writing + other.writing,
                discarded + other.discarded);
    }

    /// Why `bytes` found no room.
    public Shortage shortageOf(long bytes) {
        if (capacity == 0) {
            return Shortage.NO_SEGMENT;
        }
        if (bytes > capacity) {
            return Shortage.TOO_LARGE;
        }
        if (capacity - used >= bytes && largestFree < bytes) {
            return Shortage.FRAGMENTED;
        }
        if (evictable > 0) {
            return Shortage.EVICTION_PENDING;
        }
        long most = Math.max(Math.max(leased, hardPinned), Math.max(writing + discarded, busy));
        if (most == leased) {
            return Shortage.LEASED;
        }
        if (most == hardPinned) {
            return Shortage.HARD_PINNED;
        }
        return most == busy ? Shortage.BUSY : Shortage.WRITING;
    }

    /// What keeps a store from taking more.
    public enum Shortage {
        NO_SEGMENT("no segment is mounted"),
        TOO_LARGE("the object is larger than the store"),
        FRAGMENTED("there is room, but not in one piece"),
        EVICTION_PENDING("the next eviction makes room"),
        LEASED("leases keep most of it"),
        HARD_PINNED("hard pins keep most of it"),
        BUSY("most of it is being copied"),
        WRITING("puts that are not complete, or were replaced, keep most of it");

        private final String text;

        Shortage(String text) {
            this.text = text;
        }

        /// As the end of a sentence.
        public String text() {
            return text;
        }
    }
}
