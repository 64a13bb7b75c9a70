// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/// Closes the windows of loads (write grants, reads), each on a virtual thread of its own because
/// closing waits for a write in progress, and always says when it is done.
///
/// Closing that fails is tried again. While a live process on this host is known to be in the
/// middle of a copy ([ErrorCode#TIMEOUT]), it is tried until the copy ends or the service closes:
/// the blocks must not be reused before. Any other failure is reported after some attempts.
///
/// Threading: any thread.
final class Fences implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Fences.class);
    private static final int ATTEMPTS = 8;
    private static final long FIRST_BACK_OFF_MILLIS = 10;
    private static final long LONGEST_BACK_OFF_MILLIS = 1_000;

    /// Made ahead, for where there is no memory to say more.
    private static final Optional<Failure> NOT_DESCRIBED =
            Optional.of(
                    new Failure(
                            ErrorCode.NO_MEMORY, "no memory to tell whether a window is closed"));

    private final CountDownLatch closing = new CountDownLatch(1);
    private final ThreadFactory threads;

    Fences() {
        this(Thread.ofVirtual().name("mooncake-fence").factory());
    }

    /// @param threads make a thread for each window that is being closed
    Fences(ThreadFactory threads) {
        this.threads = threads;
    }

    /// @param what names it in the log
    /// @param window closes it, and may be called again
    /// @param then called once, with the failure where closing failed for good, on another thread
    ///   unless none can be had
    void close(String what, Runnable window, Consumer<Optional<Failure>> then) {
        Runnable work =
                () -> {
                    Optional<Failure> problem = NOT_DESCRIBED;
                    try {
                        problem = untilClosed(what, window);
                    } finally {
                        then.accept(problem);
                    }
                };
        try {
            threads.newThread(work).start();
        } catch (RejectedExecutionException
                | OutOfMemoryError e) { // others wait meanwhile, but none for ever
            LoopReport.WARN.log(LOG, "no thread to close the window of {} in", what, e);
            work.run();
        }
    }

    private Optional<Failure> untilClosed(String what, Runnable window) {
        long backOff = FIRST_BACK_OFF_MILLIS;
        for (int attempt = 1; ; attempt++) {
            try {
                window.run();
                return Optional.empty();
            } catch (RuntimeException | Error e) {
                // Errors too: the caller that waits for the blocks must be notified.
                boolean stillCopied =
                        e instanceof KvFerryException coded && coded.code() == ErrorCode.TIMEOUT;
                LoopReport.WARN.log(LOG, "closing the window of {} failed", what, e);
                if (attempt >= ATTEMPTS && !stillCopied || !pause(backOff)) {
                    return Optional.of(Failure.of(e));
                }
                backOff = Math.min(backOff * 2, LONGEST_BACK_OFF_MILLIS);
            }
        }
    }

    /// False when the service closes meanwhile.
    private boolean pause(long millis) {
        try {
            return !closing.await(millis, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    /// Ends further attempts.
    @Override
    public void close() {
        closing.countDown();
    }
}
