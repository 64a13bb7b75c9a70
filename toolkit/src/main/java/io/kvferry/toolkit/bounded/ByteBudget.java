// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import java.util.concurrent.atomic.AtomicLong;

/// How many bytes something may hold at a time.
///
/// Threading: any thread; never blocks.
public final class ByteBudget {
    private final long limit;
    private final AtomicLong taken = new AtomicLong();

    /// @param limit bytes
    public ByteBudget(long limit) {
        this.limit = limit;
    }

    /// A budget of at most `most` bytes, and at most the given part of the heap.
    public static ByteBudget ofHeap(long most, int part) {
        return new ByteBudget(Math.min(most, Runtime.getRuntime().maxMemory() / part));
    }

    /// @return whether the bytes fit; if so, the caller must [#give] them back
    public boolean take(long bytes) {
        long now = taken.addAndGet(bytes);
        if (now <= limit) {
            return true;
        }
        taken.addAndGet(-bytes);
        return false;
    }

    public void give(long bytes) {
        taken.addAndGet(-bytes);
    }

    public long limit() {
        return limit;
    }

    public long taken() {
        return taken.get();
    }
}
