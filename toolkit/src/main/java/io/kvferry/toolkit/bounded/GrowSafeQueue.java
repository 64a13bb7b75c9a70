// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import org.jspecify.annotations.Nullable;

import java.util.AbstractQueue;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.function.Consumer;

/// An array queue that stays unchanged when growing fails with OutOfMemoryError. An [ArrayDeque]
/// stores the element before it grows: if that fails, it reports to be empty, and the next element
/// overwrites the oldest.
///
/// Threading: one thread at a time.
public final class GrowSafeQueue<E> extends AbstractQueue<E> {
    private static final int FIRST_ROOM = 16;

    private ArrayDeque<E> elements = new ArrayDeque<>(FIRST_ROOM);

    /// Elements for which there is memory.
    private int room = FIRST_ROOM;

    /// @throws OutOfMemoryError when there is no memory for one more; then nothing has changed
    @Override
    public boolean offer(E element) {
        if (elements.size() == room) {
            grow();
        }
        return elements.offer(element);
    }

    private void grow() {
        int more = Math.multiplyExact(room, 2);
        var grown = new ArrayDeque<E>(more);
        grown.addAll(elements);
        elements = grown;
        room = more;
    }

    @Override
    public @Nullable E poll() {
        return elements.poll();
    }

    @Override
    public @Nullable E peek() {
        return elements.peek();
    }

    @Override
    public boolean isEmpty() {
        return elements.isEmpty();
    }

    @Override
    public int size() {
        return elements.size();
    }

    /// Does not allocate, unlike a loop over an iterator.
    @Override
    public void forEach(Consumer<? super E> action) {
        elements.forEach(action);
    }

    /// Does not allocate.
    @Override
    public boolean remove(@Nullable Object element) {
        return elements.remove(element);
    }

    @Override
    public Iterator<E> iterator() {
        return elements.iterator();
    }
}
