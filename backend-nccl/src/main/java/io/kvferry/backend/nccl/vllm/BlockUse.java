// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// The use of the engine's blocks by one transfer. It ends once. The end is reported when no copy
/// runs any more; from then on the blocks are not touched.
///
/// Threading: any thread. Several copies may run at the same time: two peers get one prompt, or a
/// reconnected peer gets it while its old communicator still receives a tensor.
final class BlockUse {
    private final Consumer<Outcome> end;
    private final ReentrantLock lock = new ReentrantLock();
    private @Nullable Outcome outcome;

    /// Copies that run.
    private int copying;

    private boolean told;

    BlockUse(Consumer<Outcome> end) {
        this.end = end;
    }

    /// Copies, unless the use is over.
    ///
    /// @return whether it was copied
    boolean copy(Runnable copy) {
        lock.lock();
        try {
            if (outcome != null) {
                return false;
            }
            copying++;
        } finally {
            lock.unlock();
        }
        try {
            copy.run();
            return true;
        } finally {
            copied();
        }
    }

    private void copied() {
        lock.lock();
        try {
            copying--;
        } finally {
            lock.unlock();
        }
        tell();
    }

    /// Ends the use without waiting. The callback runs once the running copies have ended.
    void finish(Outcome how) {
        lock.lock();
        try {
            if (outcome == null) {
                outcome = how;
            }
        } finally {
            lock.unlock();
        }
        tell();
    }

    void fail(Failure why) {
        Outcome failed;
        try {
            failed = new Outcome.Failed(why);
        } catch (OutOfMemoryError e) { // the waiting caller must be notified
            failed = Outcome.Failed.of(e);
        }
        finish(failed);
    }

    void cancel() {
        fail(new Failure(ErrorCode.CANCELLED, "the transfer was given up"));
    }

    boolean isOver() {
        lock.lock();
        try {
            return outcome != null;
        } finally {
            lock.unlock();
        }
    }

    private void tell() {
        Outcome how;
        lock.lock();
        try {
            how = outcome;
            if (how == null || copying > 0 || told) {
                return;
            }
            told = true;
        } finally {
            lock.unlock();
        }
        end.accept(how);
    }
}
