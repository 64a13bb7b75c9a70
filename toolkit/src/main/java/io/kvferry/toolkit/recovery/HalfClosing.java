// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.toolkit.bounded.Uninterrupted;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.concurrent.locks.LockSupport;

/// Closes a connector's worker half on a separate thread, so that a plugin whose `close()` hangs
/// does not block the rank.
///
/// Threading: made and asked on the rank's step thread.
final class HalfClosing {
    private static final Logger LOG = LoggerFactory.getLogger(HalfClosing.class);

    /// Between two attempts at a half that says itself that it has not finished.
    private static final long AGAIN_NANOS = 100_000_000;

    private final String what;
    private final WorkerHalf half;
    private final Runnable ended;
    private final Thread thread;

    /// Set before the thread ends.
    private volatile @Nullable Throwable failure;

    /// Whether `close()` will not be called again.
    private volatile boolean over;

    /// Whether somebody still waits for the thread, and will hear of the failure.
    private volatile boolean awaited = true;

    /// @param ended is called when it is done, in whatever way
    HalfClosing(String what, WorkerHalf half, Runnable ended) {
        this.what = what;
        this.half = half;
        this.ended = ended;
        thread =
                Thread.ofPlatform()
                        .daemon()
                        .name("kvferry-close-connector")
                        .unstarted(() -> end(() -> closeWhole(what, half)));
        try {
            thread.start();
        } catch (OutOfMemoryError e) {
            LOG.warn("no thread to close {} in, its rank waits: {}", what, e.toString());
            closeHere();
        }
    }

    private void end(Runnable closing) {
        try {
            closing.run();
        } catch (Throwable e) { // the border to the plugin
            failure = e;
            if (!awaited) {
                LOG.error("{}: close failed", what, e);
            }
        }
        over = true;
        ended.run();
    }

    /// One attempt on the thread of the rank; a half that has not finished is asked again by
    /// [#isOver].
    private void closeHere() {
        try {
            half.close();
        } catch (Throwable e) { // the border to the plugin
            if (isTimeout(e)) {
                LOG.debug("{} is not closed yet", what, e);
                return;
            }
            failure = e;
        }
        over = true;
        ended.run();
    }

    private static boolean isTimeout(Throwable failure) {
        return failure instanceof KvFerryException coded && coded.code() == ErrorCode.TIMEOUT;
    }

    private boolean hasThread() {
        return thread.getState() != Thread.State.NEW;
    }

    /// Closes a half, again and again while it says that its threads may still touch the cache.
    static void closeWhole(String what, WorkerHalf half) {
        while (true) {
            var _ = Thread.interrupted(); // by who abandoned it: closing waits where it has to
            try {
                half.close();
                return;
            } catch (KvFerryException e) {
                if (!isTimeout(e)) {
                    throw e;
                }
                LOG.debug("{} is not closed yet", what, e);
                LockSupport.parkNanos(AGAIN_NANOS);
            }
        }
    }

    /// @return whether it was done within the limit
    boolean await(Duration limit) {
        boolean done = over || hasThread() && Uninterrupted.join(thread, limit);
        awaited = done;
        return done;
    }

    boolean isOver() {
        if (!over && !hasThread()) {
            closeHere();
        }
        return over;
    }

    /// What `close()` threw; null for nothing, or as long as it is not over.
    @Nullable Throwable failure() {
        return failure;
    }
}
