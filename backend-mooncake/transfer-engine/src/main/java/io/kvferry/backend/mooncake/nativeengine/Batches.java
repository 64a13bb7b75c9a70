// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.nativeengine;

import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.EngineTransfer;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.bounded.LoopReport;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;

/// The transfers of a native engine. They are submitted on threads that may block in the library,
/// polled by one thread until every task is terminal, and only then freed. A transfer that ends
/// early for its caller (deadline, cancel) is polled until then as well.
final class Batches {
    private static final Logger LOG = LoggerFactory.getLogger(Batches.class);
    private static final int SUBMITTERS = 4;
    private static final long SHORTEST_PAUSE = TimeUnit.MICROSECONDS.toNanos(5);
    private static final long LONGEST_PAUSE = TimeUnit.MILLISECONDS.toNanos(1);

    private final NativeTransferEngine engine;
    private final TeLibrary library;
    private final MemorySegment handle;
    private final NativeConfig config;
    private final ThreadPoolExecutor submitters;

    /// The last transfer that was submitted to the library and not yet seen by the poller; the
    /// others are linked by [NativeTransfer#next]. Intrusive lists, so that adding never allocates.
    private final AtomicReference<@Nullable NativeTransfer> arriving = new AtomicReference<>();

    /// Poller thread only: the first polled transfer, linked likewise.
    private @Nullable NativeTransfer active;

    /// Of the poller.
    private final MemorySegment status = Arena.ofAuto().allocate(TeLibrary.STATUS);

    private final AtomicInteger alive = new AtomicInteger();
    private final Thread poller;
    private volatile boolean closing;
    private volatile boolean stopped;

    Batches(
            NativeTransferEngine engine,
            TeLibrary library,
            MemorySegment handle,
            NativeConfig config) {
        this(
                engine,
                library,
                handle,
                config,
                Thread.ofPlatform()
                        .name("kvferry-te-submit-" + engine.info().segmentName() + "-", 0)
                        .daemon()
                        .factory());
    }

    /// @param threads make those that submit
    Batches(
            NativeTransferEngine engine,
            TeLibrary library,
            MemorySegment handle,
            NativeConfig config,
            ThreadFactory threads) {
        this.engine = engine;
        this.library = library;
        this.handle = handle;
        this.config = config;
        String owner = engine.info().segmentName();
        this.submitters =
                new ThreadPoolExecutor(
                        SUBMITTERS,
                        SUBMITTERS,
                        10,
                        TimeUnit.SECONDS,
                        new ArrayBlockingQueue<>(config.queue()),
                        threads);
        submitters.allowCoreThreadTimeOut(true);
        this.poller =
                Thread.ofPlatform()
                        .name("kvferry-te-poll-" + owner)
                        .daemon()
                        .start(new LastingLoop(this::poll));
    }

    /// @param follow as in [NativeTransferEngine#submit]
    <T> T submit(EngineRequest request, Function<? super EngineTransfer, T> follow) {
        var transfer = new NativeTransfer(engine, library, handle, config, request);
        T followed = follow.apply(transfer);
        if (closing) {
            transfer.refuse(ErrorCode.CLOSED, "the transfer engine is closed");
        } else if (request.capability() != 0 || !request.expectedIncarnation().isEmpty()) {
            transfer.refuse(
                    ErrorCode.UNSUPPORTED,
                    "Mooncake's library knows neither capabilities nor incarnations; engine=java does");
        } else {
            start(transfer);
        }
        return followed;
    }

    private void start(NativeTransfer transfer) {
        alive.incrementAndGet();
        try {
            submitters.execute(() -> begin(transfer));
        } catch (RejectedExecutionException e) {
            alive.decrementAndGet();
            transfer.refuse(
                    closing ? ErrorCode.CLOSED : ErrorCode.BACKPRESSURE,
                    config.queue() + " transfers wait already");
        } catch (OutOfMemoryError e) { // no native thread
            alive.decrementAndGet();
            transfer.refuse(ErrorCode.BACKPRESSURE, "no thread left for a transfer");
        }
    }

    private void begin(NativeTransfer transfer) {
        boolean begun;
        try {
            if (closing) {
                transfer.refuse(ErrorCode.CLOSED, "the transfer engine was closed");
            }
            begun = transfer.begin();
        } catch (RuntimeException | Error e) {
            // Any failure: the outcome must be completed, and started tasks must be polled.
            begun = transfer.failToBegin(e);
        }
        if (!begun) {
            alive.decrementAndGet();
            return;
        }
        arrive(transfer);
        LockSupport.unpark(poller);
        if (stopped) {
            // The poller may have looked for the last time.
            transfer.giveUp(ErrorCode.CLOSED, "the transfer engine was closed");
        }
    }

    /// Started again after an OutOfMemoryError; resumes where it stopped.
    private void poll() {
        long pause = SHORTEST_PAUSE;
        while (!stopped) {
            takeArrived();
            boolean progress = pollActive();
            pause = progress ? SHORTEST_PAUSE : Math.min(pause * 2, LONGEST_PAUSE);
            if (active == null) {
                LockSupport.parkNanos(LONGEST_PAUSE * 100);
                pause = SHORTEST_PAUSE;
            } else {
                LockSupport.parkNanos(pause);
            }
        }
        for (NativeTransfer left = arriving.getAndSet(null); left != null; left = left.next) {
            left.giveUp(ErrorCode.CLOSED, "the transfer engine was closed");
        }
    }

    /// Hands a transfer that the library works on to the poller. Allocates nothing, since it must
    /// be polled even if the heap is full.
    private void arrive(NativeTransfer transfer) {
        NativeTransfer last;
        do {
            last = arriving.get();
            transfer.next = last;
        } while (!arriving.compareAndSet(last, transfer));
    }

    private void takeArrived() {
        NativeTransfer arrived = arriving.getAndSet(null);
        while (arrived != null) {
            NativeTransfer following = arrived.next;
            arrived.next = active;
            active = arrived;
            arrived = following;
        }
    }

    /// Whether one of them has ended.
    private boolean pollActive() {
        boolean progress = false;
        NativeTransfer before = null;
        for (NativeTransfer each = active; each != null; each = each.next) {
            if (!ended(each)) {
                before = each;
                continue;
            }
            if (before == null) {
                active = each.next;
            } else {
                before.next = each.next;
            }
            alive.decrementAndGet();
            progress = true;
        }
        return progress;
    }

    private boolean ended(NativeTransfer transfer) {
        try {
            if (closing) {
                transfer.giveUp(ErrorCode.CLOSED, "the transfer engine was closed");
            }
            return transfer.poll(status, submitters);
        } catch (OutOfMemoryError e) {
            if (transfer.isQuiet()) {
                transfer.abandon(e);
                return true;
            }
            transfer.giveUpIfOverdue();
            return false; // the library still works on it, and it is polled again
        } catch (RuntimeException | Error e) { // Errors too: the others are polled on
            if (!transfer.isQuiet()) {
                alive.incrementAndGet(); // for good: the library may touch its memory at any time
            }
            transfer.abandon(e);
            LoopReport.ERROR.log(LOG, "a native transfer is given up and its batch left behind", e);
            return true;
        }
    }

    boolean awaitIdle(Deadline deadline) {
        while (alive.get() > 0) {
            if (deadline.passed()) {
                return false;
            }
            LockSupport.parkNanos(LONGEST_PAUSE);
        }
        return true;
    }

    /// False when the library still works on something; that is polled on, and a later call may
    /// find it ended.
    boolean close() {
        closing = true;
        submitters.shutdown();
        if (!awaitIdle(Deadline.in(config.closeTimeout()))) {
            return false;
        }
        stopped = true;
        LockSupport.unpark(poller);
        try {
            return poller.join(Duration.ofSeconds(5))
                    && submitters.awaitTermination(5, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }
}
