// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// The end of a transfer. The first outcome counts. It is reported once, when no copy reads or
/// writes the blocks of the transfer any more.
///
/// Not part of the loop's state, so that a transfer can be ended, and new copies prevented, while
/// the loop's thread hangs in a driver call.
///
/// Threading: any thread; `told` runs on the thread that ends the transfer or its last copy.
final class TransferEnd {
    private final Consumer<Outcome> told;
    private final ReentrantLock lock = new ReentrantLock();
    private int copies;
    private @Nullable Outcome outcome;

    TransferEnd(Consumer<Outcome> told) {
        this.told = told;
    }

    /// @return false when the transfer has ended: its blocks are not to be touched
    boolean beginCopy() {
        lock.lock();
        try {
            if (outcome != null) {
                return false;
            }
            copies++;
            return true;
        } finally {
            lock.unlock();
        }
    }

    void endCopy() {
        Outcome due;
        lock.lock();
        try {
            copies--;
            due = copies == 0 ? outcome : null;
        } finally {
            lock.unlock();
        }
        if (due != null) {
            told.accept(due);
        }
    }

    /// @return whether this is the outcome that counts
    boolean finish(Outcome how) {
        boolean now;
        lock.lock();
        try {
            if (outcome != null) {
                return false;
            }
            outcome = how;
            now = copies == 0;
        } finally {
            lock.unlock();
        }
        if (now) {
            told.accept(how);
        }
        return true;
    }

    boolean finished() {
        lock.lock();
        try {
            return outcome != null;
        } finally {
            lock.unlock();
        }
    }
}
