// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;
import java.util.function.Supplier;

/// Opens a connector's worker half in a thread of its own while the rank goes on without it.
///
/// Threading: made, asked, abandoned and closed on the rank's step thread.
///
/// @param <H> the half's interface
final class HalfOpening<H extends WorkerHalf> implements AutoCloseable {
    /// How long [#close] waits for a half that is just being opened.
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(5);

    private final Thread thread;
    private final ReentrantLock lock = new ReentrantLock();

    // under the lock
    private @Nullable Opened opened;
    private @Nullable H half;
    private boolean abandoned;

    /// Whether a half that nobody wanted any more did not let itself be closed.
    private volatile boolean unclosed;

    private boolean told;

    /// @param news is called when it is done, in whatever way
    HalfOpening(String what, Supplier<H> open, Function<H, Payload> handshake, Runnable news) {
        thread =
                Thread.ofPlatform()
                        .daemon()
                        .name("kvferry-open-connector")
                        .unstarted(() -> {
                            open(what, open, handshake);
                            news.run();
                        });
        thread.start();
    }

    private void open(String what, Supplier<H> open, Function<H, Payload> handshake) {
        H made = null;
        try {
            made = open.get();
            var answer = handshake.apply(made);
            if (!keep(made, new Opened(answer, Optional.empty()))) {
                closeUnwanted(what, made);
            }
        } catch (Throwable e) { // the border to the plugin
            if (made != null) {
                closeUnwanted(what, made);
            }
            var failure = Failure.of(e);
            keep(
                    null,
                    new Opened(
                            Payload.EMPTY,
                            Optional.of(
                                    new Failure(
                                            failure.code(),
                                            what
                                                    + " could not be opened again: "
                                                    + failure.message()))));
        }
    }

    /// @return whether somebody still wants it
    private boolean keep(@Nullable H made, Opened how) {
        lock.lock();
        try {
            if (!abandoned) {
                half = made;
                opened = how;
            }
            return !abandoned;
        } finally {
            lock.unlock();
        }
    }

    private void closeUnwanted(String what, H made) {
        try {
            HalfClosing.closeWhole(what, made);
        } catch (Throwable e) { // the border to the plugin; the failure to open is what counts
            unclosed = true;
        }
    }

    /// How it went, once.
    Optional<Opened> takeOpened() {
        lock.lock();
        try {
            if (opened == null || told) {
                return Optional.empty();
            }
            told = true;
            return Optional.of(opened);
        } finally {
            lock.unlock();
        }
    }

    /// The half, if it could be opened; the caller closes it.
    @Nullable H take() {
        lock.lock();
        try {
            var taken = half;
            half = null;
            return taken;
        } finally {
            lock.unlock();
        }
    }

    /// Gives up the half. If it is already open, it is returned and the caller must close it;
    /// otherwise the opening thread closes it. Does not wait for that thread.
    @Nullable H abandon() {
        lock.lock();
        try {
            abandoned = true;
        } finally {
            lock.unlock();
        }
        thread.interrupt();
        return take();
    }

    /// Whether no thread works on a half that was abandoned.
    boolean isOver() {
        return !thread.isAlive() && !unclosed;
    }

    /// Waits a little for the thread of one that was abandoned.
    ///
    /// @throws IllegalStateException when a half is still being opened: it may touch the cache for
    ///   ever
    @Override
    public void close() {
        try {
            thread.join(CLOSE_LIMIT);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        if (!isOver()) {
            throw new IllegalStateException("a connector is still being opened");
        }
    }
}
