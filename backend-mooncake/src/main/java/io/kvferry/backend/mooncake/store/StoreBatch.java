// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Objects;
import java.util.function.Supplier;

/// Keys of one call and, for each, the pieces of memory that its bytes come from or go to, in
/// order. Columnar and reusable: once it has its size, filling it again makes no object.
///
/// Threading: one thread at a time. The memory outlives the call that it is passed to.
public final class StoreBatch {
    private String[] keys = new String[16];
    private @Nullable String[] groups = new String[16];
    private int[] firstBuffer = new int[17];
    private MemorySegment[] memory = new MemorySegment[64];
    private long[] offsets = new long[64];
    private long[] lengths = new long[64];
    private int size;
    private int buffers;

    private @Nullable Object attached;

    /// Begins a key; its buffers follow.
    public StoreBatch add(String key) {
        return add(key, null);
    }

    /// Begins a key of a group, whose members are evicted together.
    public StoreBatch add(String key, @Nullable String group) {
        if (size == keys.length) {
            int more = 2 * size;
            keys = Arrays.copyOf(keys, more);
            groups = Arrays.copyOf(groups, more);
            firstBuffer = Arrays.copyOf(firstBuffer, more + 1);
        }
        keys[size] = Objects.requireNonNull(key, "key");
        groups[size] = group;
        size++;
        firstBuffer[size] = buffers;
        return this;
    }

    /// The next piece of the last key: `length` bytes of `segment` from `offset` on. Host memory;
    /// not checked before the call.
    public StoreBatch buffer(MemorySegment segment, long offset, long length) {
        if (size == 0) {
            throw new IllegalStateException("a buffer before the first key");
        }
        if (buffers == offsets.length) {
            memory = Arrays.copyOf(memory, 2 * buffers);
            offsets = Arrays.copyOf(offsets, 2 * buffers);
            lengths = Arrays.copyOf(lengths, 2 * buffers);
        }
        Objects.checkFromIndexSize(offset, length, segment.byteSize());
        memory[buffers] = segment;
        offsets[buffers] = offset;
        lengths[buffers] = length;
        buffers++;
        firstBuffer[size] = buffers;
        return this;
    }

    /// A key of another batch, with its group and its pieces.
    public StoreBatch add(StoreBatch other, int index) {
        add(other.key(index), other.group(index));
        for (int b = other.first(index); b < other.end(index); b++) {
            buffer(other.memory[b], other.offsets[b], other.lengths[b]);
        }
        return this;
    }

    /// A whole segment as the next piece.
    public StoreBatch buffer(MemorySegment segment) {
        return buffer(segment, 0, segment.byteSize());
    }

    /// Forgets everything, keeps the room.
    public StoreBatch clear() {
        Arrays.fill(memory, 0, buffers, MemorySegment.NULL);
        size = 0;
        buffers = 0;
        return this;
    }

    /// Number of keys.
    public int size() {
        return size;
    }

    public String key(int index) {
        return keys[Objects.checkIndex(index, size)];
    }

    /// What a store keeps with the batch from call to call, so that a batch that is filled again
    /// costs no object. One of another type takes its place.
    public <T> T attachment(Class<T> type, Supplier<T> make) {
        if (type.isInstance(attached)) {
            return type.cast(attached);
        }
        T made = make.get();
        attached = made;
        return made;
    }

    /// Group of a key; null without one.
    public @Nullable String group(int index) {
        return groups[index];
    }

    /// Bytes of the buffers of a key.
    public long bytes(int index) {
        long sum = 0;
        for (int b = first(index); b < end(index); b++) {
            sum += lengths[b];
        }
        return sum;
    }

    /// First buffer of a key.
    public int first(int index) {
        return firstBuffer[index];
    }

    /// Behind the last buffer of a key.
    public int end(int index) {
        return firstBuffer[index + 1];
    }

    /// Memory that a buffer lies in.
    public MemorySegment memory(int buffer) {
        return memory[buffer];
    }

    /// Where in it the buffer begins.
    public long offset(int buffer) {
        return offsets[buffer];
    }

    /// Bytes of a buffer.
    public long length(int buffer) {
        return lengths[buffer];
    }
}
