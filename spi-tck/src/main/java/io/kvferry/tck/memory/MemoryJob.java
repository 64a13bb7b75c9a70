// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;

/// A transfer of one rank while it runs: layers that are done, blocks that failed, whether it was
/// revoked.
///
/// Threading: any thread.
final class MemoryJob {
    private final TransferId id;
    private final boolean[] layersDone;
    private final boolean[][] failed;
    private final MemoryPlan.Blocks blocks;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private Optional<Failure> failure = Optional.empty();
    private long bytes;
    private boolean ended;
    private volatile boolean revoked;

    MemoryJob(TransferId id, int layers, int groups, MemoryPlan.Blocks blocks) {
        this.id = id;
        this.layersDone = new boolean[layers];
        this.failed = new boolean[groups][blocks.count()];
        this.blocks = blocks;
    }

    TransferId id() {
        return id;
    }

    void revoke() {
        revoked = true;
    }

    boolean isRevoked() {
        return revoked;
    }

    void moved(long more) {
        bytes += more; // by the one thread that runs the job; read after end()
    }

    /// A block that does not hold its data.
    void fail(int group, int index, Failure why) {
        lock.lock();
        try {
            failed[group][index] = true;
            failure = Optional.of(failure.orElse(why));
        } finally {
            lock.unlock();
        }
    }

    /// No block holds its data.
    void failAll(Failure why) {
        lock.lock();
        try {
            for (int group = 0; group < failed.length; group++) {
                for (int i = 0; i < failed[group].length; i++) {
                    failed[group][i] = blocks.has(group, i);
                }
            }
            failure = Optional.of(failure.orElse(why));
        } finally {
            lock.unlock();
        }
    }

    long bytes() {
        return bytes;
    }

    void layerDone(int layer) {
        lock.lock();
        try {
            layersDone[layer] = true;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /// Nothing of it is in flight any more.
    void end() {
        lock.lock();
        try {
            ended = true;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    boolean hasEnded() {
        lock.lock();
        try {
            return ended;
        } finally {
            lock.unlock();
        }
    }

    /// Waits until the layer is in place (or the job has ended, one way or other); false at the
    /// deadline.
    boolean awaitLayer(int layer, Deadline limit) {
        return await(limit, () -> layersDone[layer] || ended);
    }

    boolean awaitEnd(Deadline limit) {
        return await(limit, () -> ended);
    }

    private boolean await(Deadline limit, BooleanSupplier condition) {
        lock.lock();
        try {
            while (!condition.getAsBoolean()) {
                long left = limit.remainingNanos();
                if (left <= 0 || !changed.await(left, TimeUnit.NANOSECONDS) && limit.passed()) {
                    return condition.getAsBoolean();
                }
            }
            return true;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        } finally {
            lock.unlock();
        }
    }

    Completion.Result result() {
        if (revoked) {
            return new Completion.Revoked();
        }
        lock.lock();
        try {
            if (failure.isEmpty()) {
                return new Completion.Completed(bytes);
            }
            var lost = new ArrayList<Completion.FailedBlocks>();
            for (int group = 0; group < failed.length; group++) {
                var positions = positions(failed[group]);
                if (positions.length > 0) {
                    lost.add(new Completion.FailedBlocks(group, positions));
                }
            }
            return new Completion.Failed(failure.get(), lost);
        } finally {
            lock.unlock();
        }
    }

    private int[] positions(boolean[] flags) {
        var positions = new int[flags.length];
        int count = 0;
        for (int i = 0; i < flags.length; i++) {
            if (flags[i]) {
                positions[count++] = blocks.first() + i;
            }
        }
        return Arrays.copyOf(positions, count);
    }
}
