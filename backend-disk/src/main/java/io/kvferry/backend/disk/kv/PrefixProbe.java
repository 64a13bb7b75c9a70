// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockCallback;
import io.kvferry.backend.disk.store.BlockKey;
import io.kvferry.backend.disk.store.BlockResult;

import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.locks.LockSupport;

/// A lookup under way on an I/O thread, so that a hanging file system never holds up the scheduler.
final class PrefixProbe implements BlockCallback {
    private static final int PENDING = -1;
    private static final int FAILED = -2;

    final List<BlockKey> keys;
    final int from;
    private final Thread waiter = Thread.currentThread();
    private volatile int located = PENDING;

    PrefixProbe(List<BlockKey> keys, int from) {
        this.keys = keys;
        this.from = from;
    }

    @Override
    public void completed(long tag, BlockResult result) {
        located = result instanceof BlockResult.Located(int count) ? count : FAILED;
        LockSupport.unpark(waiter);
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

    /// Keys found from the front; empty when the file system failed or did not answer in time.
    OptionalInt located() {
        return located >= 0 ? OptionalInt.of(located) : OptionalInt.empty();
    }
}
