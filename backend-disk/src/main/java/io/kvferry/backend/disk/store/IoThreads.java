// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.bounded.Uninterrupted;
import io.kvferry.toolkit.disk.DeadlineWatch;
import io.kvferry.toolkit.disk.IoPool;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// The queues of one store, the threads that serve them, and the thread that notices deadlines.
///
/// Threading: any thread.
final class IoThreads {
    private static final Logger LOG = LoggerFactory.getLogger(IoThreads.class);

    private final StoreCore core;
    private final IoPool<BlockTask> pool;
    private final DeadlineWatch watch;
    private final Thread watchThread;
    private final List<Thread> workers = new ArrayList<>();

    /// Starts the threads.
    IoThreads(StoreCore core, StoreCounters counters, StoreConfig.Pools pools, DirectMode direct) {
        this.core = core;
        int count = pools.readThreads() + pools.writeThreads();
        this.pool = new IoPool<>(pools.queueDepth(), count, () -> new BlockTask(counters));
        this.watch = new DeadlineWatch(pool);
        try {
            for (int i = 0; i < count; i++) {
                var role = IoPool.Role.of(i, pools.readThreads());
                workers.add(
                        start(
                                (role == IoPool.Role.READER ? "disk-read-" : "disk-write-") + i,
                                new IoWorker(core, counters, pool, role, direct)));
            }
            this.watchThread = start("disk-deadlines", watch);
        } catch (RuntimeException | Error e) { // such as no memory for one more thread
            pool.close(); // ends those that were started
            throw e;
        }
    }

    private static Thread start(String name, Runnable loop) {
        return Thread.ofPlatform().name(name).daemon(true).start(new LastingLoop(loop));
    }

    /// A free task to prepare and [#submit]; null when too many of its kind wait or the store is
    /// closed.
    @Nullable BlockTask claim(BlockTask.Kind kind) {
        return pool.claim(kind.reads());
    }

    void submit(BlockTask task) {
        pool.submit(task, task.kind().reads());
    }

    /// Threads that hang in the file system with requests whose deadline has passed.
    int stalled() {
        long now = System.nanoTime();
        return pool.count(task -> task.stalled(now));
    }

    /// Starts [#close] without waiting. Must not allocate.
    void stop() {
        pool.close();
        watch.stop(watchThread);
    }

    /// Refuses new tasks, lets those in flight end, and ends the threads. One that hangs in the
    /// file system is left behind as a daemon with its own memory. Waits, within its limits, also
    /// when the caller is interrupted: the memory of requests may be freed afterwards.
    ///
    /// @param io longest time of one task
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when one may still write to memory of a caller;
    ///   to be called again then
    void close(Duration io) {
        pool.close();
        boolean idle = Uninterrupted.await(pool::awaitIdle, io.plus(Janitor.patience()));
        if (!idle) {
            requireThatNoneFills();
            LOG.warn(
                    "{} I/O threads hang in {} and are left behind",
                    stalled(),
                    core.folder().folder());
        }
        watch.stop(watchThread); // not before: a load that is not expired may still write
        if (idle) {
            for (Thread worker : workers) {
                Uninterrupted.join(worker, Janitor.patience());
            }
        }
        Uninterrupted.join(watchThread, Janitor.patience());
    }

    private void requireThatNoneFills() {
        int filling = pool.count(task -> task.isLive() && task.kind() == BlockTask.Kind.LOAD);
        if (filling > 0) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    filling
                            + " I/O threads hang in "
                            + core.folder().folder()
                            + " and may still write to memory of the engine");
        }
    }
}
