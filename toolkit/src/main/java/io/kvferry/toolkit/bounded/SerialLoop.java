// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/// One named thread that runs posted work in order; it owns the state of a service.
///
/// [#post], for the service's own work, always accepts. [#offer], for work caused by peers, is
/// bounded in total and per peer.
///
/// Threading: any thread may post.
public final class SerialLoop implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(SerialLoop.class);

    /// Pieces of work of all peers. One peer gets half of them at most, see [FairRoom].
    static final int MAX_OFFERED = 1 << 14;

    private static final int PART_OF_HEAP = 8;

    /// Bytes of them.
    static final long MAX_OFFERED_BYTES =
            Math.min(256L << 20, Runtime.getRuntime().maxMemory() / PART_OF_HEAP);

    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(5);

    private final ThreadPoolExecutor executor;
    private final FairRoom room = new FairRoom(MAX_OFFERED, MAX_OFFERED_BYTES);

    public SerialLoop(String name) {
        this(Thread.ofPlatform().name(name).daemon(true).factory());
    }

    /// @param threads makes the one thread, now: work that is posted must not wait for memory for
    ///   it
    SerialLoop(ThreadFactory threads) {
        this(threads, new LinkedBlockingQueue<>());
    }

    /// @param queue without a bound
    SerialLoop(ThreadFactory threads, BlockingQueue<Runnable> queue) {
        executor = new ThreadPoolExecutor(1, 1, 0, TimeUnit.SECONDS, queue, threads);
        LoopReport.load();
        HeapPause.load();
        executor.prestartCoreThread();
    }

    /// Runs `work` on the loop unless the loop is closed. If queueing fails for lack of memory,
    /// retries for some seconds, because the work may be the only notice of the end of a transfer.
    ///
    /// @throws OutOfMemoryError when all retries failed
    public void post(Runnable work) {
        post(Runnable::run, work);
    }

    /// As [#post(Runnable)], for work on a value that is known only now; avoids allocating a
    /// closure in the caller.
    public <T> void post(Consumer<? super T> work, T value) {
        for (int attempt = 1; ; attempt++) {
            try {
                executor.execute(guarded(() -> work.accept(value)));
                return;
            } catch (RejectedExecutionException e) {
                LOG.debug("work after close dropped: {}", e.toString());
                return;
            } catch (OutOfMemoryError e) {
                HeapPause.after(attempt, e);
            }
        }
    }

    /// Runs it if there is room.
    ///
    /// @param peer on whose behalf
    /// @param bytes of memory that it holds while it waits
    /// @return whether it was taken
    public boolean offer(String peer, long bytes, Runnable work) {
        if (!room.take(peer, bytes)) {
            return false;
        }
        try {
            executor.execute(
                    guarded(() -> {
                        room.give(peer, bytes);
                        work.run();
                    }));
            return true;
        } catch (RejectedExecutionException e) {
            room.give(peer, bytes);
            LOG.debug("work after close dropped: {}", e.toString());
            return false;
        } catch (Error e) { // no memory to queue it
            room.give(peer, bytes);
            throw e;
        }
    }

    /// Drops queued work and returns when the running piece has ended or the limit has passed. An
    /// interrupt does not end the wait, because resources used by the work are freed afterwards.
    @Override
    public void close() {
        executor.shutdownNow();
        if (!Uninterrupted.awaitTermination(executor, CLOSE_LIMIT)) {
            LOG.warn("a service thread did not end within {}", CLOSE_LIMIT);
        }
    }

    /// Catches everything: a bug in one piece of work must not end the thread for all others.
    private static Runnable guarded(Runnable work) {
        return () -> {
            try {
                work.run();
            } catch (RuntimeException | Error e) {
                LoopReport.ERROR.log(LOG, "a piece of work failed", e);
            }
        };
    }
}
