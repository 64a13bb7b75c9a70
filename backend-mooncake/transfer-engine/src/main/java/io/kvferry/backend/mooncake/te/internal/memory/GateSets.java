// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import io.kvferry.toolkit.bounded.ThreadSlots;

import org.jspecify.annotations.Nullable;

import java.util.ArrayDeque;
import java.util.concurrent.locks.ReentrantLock;

/// Gate sets for one transfer after the other. They grow with the ranges of a transfer, so that a
/// fresh one for each would allocate with every range.
///
/// Threading: any thread.
public final class GateSets {
    private static final int MOST = 64;

    private final ThreadSlots<GateSet> slots = new ThreadSlots<>();

    /// Sets whose slot was occupied.
    private final ReentrantLock lock = new ReentrantLock();

    private final ArrayDeque<GateSet> free = new ArrayDeque<>(MOST);

    public GateSet take() {
        GateSet own = slots.take();
        if (own != null) {
            return own;
        }
        lock.lock();
        try {
            @Nullable GateSet used = free.pollFirst();
            return used == null ? new GateSet() : used;
        } finally {
            lock.unlock();
        }
    }

    /// Takes back an empty set.
    public void give(GateSet set) {
        if (slots.put(set)) {
            return;
        }
        lock.lock();
        try {
            if (free.size() < MOST) {
                free.addFirst(set);
            }
        } finally {
            lock.unlock();
        }
    }
}
