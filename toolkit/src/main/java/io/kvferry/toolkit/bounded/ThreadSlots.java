// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.Consumer;

/// Slots that hold one object each; usually a thread has a slot to itself. They replace a locked
/// queue for objects that threads use in turn: each object stays in the slot of the thread that
/// used it last, which takes it and puts it back without a lock and without sharing a cache line.
/// When its slot is occupied, the caller keeps the object elsewhere.
///
/// All changes are totally ordered together with volatile accesses: if one thread puts an object
/// and then reads a volatile field, and another writes that field and then scans all slots, at
/// least one of them sees the other's change.
///
/// Threading: any.
public final class ThreadSlots<T> {
    /// Two threads that run at a time seldom have one place.
    private static final int EACH_PROCESSOR = 4;

    private static final int MOST = 256;

    /// A cache line of references, or two.
    private static final int STRIDE = 16;

    private final AtomicReferenceArray<@Nullable T> slots;

    /// One less than a power of two.
    private final int mask;

    public ThreadSlots() {
        this(Runtime.getRuntime().availableProcessors() * EACH_PROCESSOR);
    }

    /// @param least places, of which there are 256 at most
    public ThreadSlots(int least) {
        int count = Integer.highestOneBit(Math.clamp(least, 1, MOST) * 2 - 1);
        this.mask = count - 1;
        this.slots = new AtomicReferenceArray<>((count + 1) * STRIDE);
    }

    /// Threads that were started one after the other have different places.
    private int own() {
        return index((int) Thread.currentThread().threadId() & mask);
    }

    /// The first line also holds the length of the array.
    private static int index(int slot) {
        return (slot + 1) * STRIDE;
    }

    /// Takes the object from this thread's slot and leaves the slot empty; null if it was empty.
    public @Nullable T take() {
        int own = own();
        return slots.getPlain(own) == null ? null : slots.getAndSet(own, null);
    }

    /// Takes an object from any slot; null if all are empty.
    public @Nullable T takeAny() {
        for (int slot = 0; slot <= mask; slot++) {
            T seen = slots.get(index(slot));
            if (seen != null && slots.compareAndSet(index(slot), seen, null)) {
                return seen;
            }
        }
        return null;
    }

    /// Puts an object into this thread's slot; returns false when the slot is occupied.
    public boolean put(T value) {
        return slots.compareAndSet(own(), null, value);
    }

    /// Removes the object that this thread has put down; returns false when it is no longer there.
    public boolean remove(T value) {
        return slots.compareAndSet(own(), value, null);
    }

    /// Shows what lies in the places, which may be taken meanwhile.
    public void forEach(Consumer<? super T> look) {
        for (int slot = 0; slot <= mask; slot++) {
            T seen = slots.get(index(slot));
            if (seen != null) {
                look.accept(seen);
            }
        }
    }

    /// As [#remove], from any place.
    public boolean removeAny(T value) {
        for (int slot = 0; slot <= mask; slot++) {
            if (slots.compareAndSet(index(slot), value, null)) {
                return true;
            }
        }
        return false;
    }
}
