// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.memory.OffsetAllocator;
import io.kvferry.backend.mooncake.store.tier.DiskObject;

import org.jspecify.annotations.Nullable;

/// What the store knows of one object. Times are those of [StoreTime].
///
/// Threading: fields that change are guarded by the lock of the object's shard. Who has pinned it
/// may read its memory without.
public final class StoredObject {
    /// States of its replica.
    public enum State {
        /// Its writer has not said that it is complete.
        PROCESSING,
        COMPLETE,
        /// No longer in the table; its memory goes with the last pin.
        REMOVED
    }

    /// The object (128), its slot in the table and, while that doubles, the one before (16), its
    /// range and a free one beside it (2 * 33, twice while the tables double), its member list (8),
    /// a copy on disk (64) and its slot (8), its slot in a queue (8).
    private static final long OBJECT_HEAP = 368;

    /// String (24), header of its array (16), padding.
    private static final long TEXT_HEAP = 48;

    public final StoreIdentity identity;
    public final String key;
    public final int hash;
    public final long size;
    public final long writer;
    public final long put;
    public final long putStart;
    public final boolean hardPinned;
    public final @Nullable ObjectGroup group;

    /// Chain of its bucket.
    @Nullable StoredObject next;

    /// Which of the members of its group it is; guarded by the group.
    int place;

    /// Where its memory is; null without. Does not change while it is pinned.
    public @Nullable Segment segment;

    int handle = OffsetAllocator.NONE;
    public long offset;

    /// Its copy on disk. An object that can be read has memory or such a copy, or both.
    public @Nullable DiskObject disk;

    /// Whether a copy is being written just now.
    public boolean writing;

    /// Whether a restart may find that copy already. Who removes it then waits for the write.
    public boolean sealed;

    /// How often it was read from disk.
    public int diskReads;

    public State state = State.PROCESSING;
    public int checksum;

    /// Time that the soft pin is to last, from the end of the put on; then when it ends.
    public long softPin;

    /// When the last lease ends or ended; also how recently it was used.
    public long lease;

    /// Copies under way.
    public int pins;

    /// Whether the memory goes when the last pin does.
    boolean freeOnUnpin;

    /// @param put number that tells the puts of one key apart
    public StoredObject(
            StoreIdentity identity,
            String key,
            int hash,
            long size,
            long writer,
            long put,
            long putStart,
            boolean hardPinned,
            @Nullable ObjectGroup group) {
        this.identity = identity;
        this.key = key;
        this.hash = hash;
        this.size = size;
        this.writer = writer;
        this.put = put;
        this.putStart = putStart;
        this.hardPinned = hardPinned;
        this.group = group;
    }

    /// What it costs on the heap, a bit more rather than less: itself, its key with two bytes a
    /// character, its place in the table and in the allocator, and its copy on disk, which has the
    /// group once more. What its group costs beside that is counted with the group.
    public long heapBytes() {
        return heapBytes(key, group == null ? null : group.name.group());
    }

    public static long heapBytes(String key, @Nullable String group) {
        return OBJECT_HEAP + textHeap(key) + (group == null ? 0 : textHeap(group));
    }

    /// A string of two bytes a character, with its headers.
    static long textHeap(String text) {
        return TEXT_HEAP + 2L * text.length();
    }

    /// Something else that memory can be taken for, and that is in no table.
    public StoredObject copyOf() {
        return new StoredObject(identity, key, hash, size, writer, put, putStart, false, null);
    }

    /// When its lease or that of its group ends: before that it is not evicted, and the older it is
    /// the earlier it is.
    public long effectiveLease() {
        return group == null ? lease : Math.max(lease, group.lease());
    }

    public boolean isLeased(long now) {
        return now < effectiveLease();
    }

    public boolean isSoftPinned(long now) {
        return state == State.COMPLETE && now < softPin;
    }

    /// Whether an eviction counts it: what it can free, leased or not.
    public boolean isEvictable() {
        return state == State.COMPLETE && pins == 0 && !hardPinned && hasMemory();
    }

    public boolean hasMemory() {
        return handle != OffsetAllocator.NONE;
    }

    public Segment place() {
        if (segment == null) {
            throw new IllegalStateException("an object without a place");
        }
        return segment;
    }

    /// Takes over the memory of another one.
    public void takePlaceOf(StoredObject other) {
        segment = other.segment;
        offset = other.offset;
        handle = other.handle;
    }

    /// Frees the memory now, or with the last pin.
    public void freeMemory() {
        if (pins > 0) {
            freeOnUnpin = true;
        } else if (hasMemory()) {
            dropMemory();
        }
    }

    /// Frees the memory of an object that is not pinned.
    public void dropMemory() {
        place().release(handle);
        handle = OffsetAllocator.NONE;
        segment = null;
    }

    public void unpin() {
        pins--;
        if (pins == 0 && freeOnUnpin) {
            freeOnUnpin = false;
            freeMemory();
        }
    }
}
