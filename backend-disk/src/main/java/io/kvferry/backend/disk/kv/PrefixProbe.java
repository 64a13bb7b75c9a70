// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.store.BlockCallback;

import java.util.OptionalInt;
import java.util.concurrent.locks.LockSupport;

/// A lookup that runs on an I/O thread, so that a hanging file system cannot block the scheduler.
final class PrefixProbe implements BlockCallback {
    private static final int PENDING = -1;
    private static final int FAILED = -2;

    private final PrefixSearch search;
    private final Thread waiter = Thread.currentThread();
    private volatile int located = PENDING;

    PrefixProbe(PrefixSearch search) {
        this.search = search;
    }

    /// Complete once [#await] returned true.
    PrefixSearch search() {
        return search;
    }

    @Override
    public void completed(long tag, BlockResult result) {
        located = result instanceof BlockResult.Located(int count) ? count : FAILED;
        LockSupport.unpark(waiter);
    }

    boolean isPending() {
        return located == PENDING;
    }

    /// Waits a short while; whether there is an answer.
    boolean await(long nanos) {
        long end = System.nanoTime() + nanos;
        while (located == PENDING) {
            long left = end - System.nanoTime();
            if (left <= 0) {
                return false;
            }
            LockSupport.parkNanos(this, left);
        }
        return true;
    }

    /// Blocks found; empty when the file system failed or did not answer in time.
    OptionalInt located() {
        return located >= 0 ? OptionalInt.of(located) : OptionalInt.empty();
    }
}
