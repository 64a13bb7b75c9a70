// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.Optional;
import java.util.function.Function;
import java.util.function.LongFunction;

/// Where the worker half of a connector is on one rank: it can be closed, and another one opened in
/// a thread of its own, while the rank goes on without it. A half whose `close()` takes long is
/// closed behind the rank's steps: [#isClosing] until then.
///
/// Threading: the rank's step thread only.
///
/// @param <H> the half's interface
public final class WorkerSlot<H extends WorkerHalf> implements AutoCloseable {
    /// How long a step waits for a half that is given up. Most are closed by then.
    private static final Duration GRACE = Duration.ofMillis(500);

    /// How long the end of a rank waits for a half.
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(30);

    private final String what;
    private final Function<H, Payload> handshake;
    private final Duration grace;
    private final Duration closeLimit;
    private @Nullable H half;
    private @Nullable HalfOpening<H> opening;

    /// One that nobody wants any more, and whose thread may still be at it.
    private @Nullable HalfOpening<H> abandoned;

    /// The half that was given up last.
    private @Nullable HalfClosing closing;

    /// Whether a half did not let itself be closed.
    private boolean unclosed;

    /// @param what how failures name the half
    /// @param half the first one; null for none
    /// @param handshake asks a half that was opened again
    public WorkerSlot(String what, @Nullable H half, Function<H, Payload> handshake) {
        this(what, half, handshake, GRACE);
    }

    /// @param grace how long [#giveUp] waits
    public WorkerSlot(
            String what, @Nullable H half, Function<H, Payload> handshake, Duration grace) {
        this(what, half, handshake, grace, CLOSE_LIMIT);
    }

    /// @param closeLimit how long [#close] waits
    WorkerSlot(
            String what,
            @Nullable H half,
            Function<H, Payload> handshake,
            Duration grace,
            Duration closeLimit) {
        this.what = what;
        this.half = half;
        this.handshake = handshake;
        this.grace = grace;
        this.closeLimit = closeLimit;
    }

    /// The half; null while there is none.
    public @Nullable H half() {
        return half;
    }

    /// Does what a step says about the half.
    ///
    /// @param open opens a half for an incarnation of the engine
    /// @param news is called when that is done, also late, on any thread
    /// @throws RuntimeException or an Error of the plugin's close(); [#isUnclosed] then
    public void change(ConnectorChange change, LongFunction<H> open, Runnable news) {
        switch (change.kind()) {
            case NONE -> {}
            case CLOSE -> giveUp(news);
            case OPEN -> open(change.incarnation(), open, news);
            case USE -> {
                var done = opening;
                half = done == null ? null : done.take();
                opening = null;
            }
        }
    }

    private void open(long incarnation, LongFunction<H> open, Runnable news) {
        var before = abandoned;
        boolean free = !isClosing() && !unclosed && (before == null || before.isOver());
        if (free) {
            abandoned = null;
        }
        opening =
                new HalfOpening<>(
                        what,
                        () -> {
                            if (!free) {
                                throw new KvFerryException(
                                        ErrorCode.UNAVAILABLE,
                                        "the half before it is not closed yet");
                            }
                            return open.apply(incarnation);
                        },
                        handshake,
                        news);
    }

    /// How opening went, once it is done.
    public Optional<Opened> takeOpened() {
        var current = opening;
        return current == null ? Optional.empty() : current.takeOpened();
    }

    /// Whether a half that was given up is still being closed: its threads may touch the cache, and
    /// what it had open has not ended.
    public boolean isClosing() {
        var last = closing;
        if (last == null) {
            return false;
        }
        if (!last.isOver()) {
            return true;
        }
        closing = null;
        unclosed |= last.failure() != null;
        return false;
    }

    /// Whether threads of a half may touch the cache although it was given up or closed.
    public boolean isUnclosed() {
        var left = abandoned;
        return isClosing() || unclosed || (left != null && !left.isOver());
    }

    /// Closes the half, and what is being opened. Closing is what stops a plugin's threads from
    /// touching the cache. Waits for that a little; [#isClosing] when it takes longer.
    ///
    /// @param news is called when that is done, also late, on any thread
    /// @throws RuntimeException or an Error of the plugin's; [#isUnclosed] then
    public void giveUp(Runnable news) {
        beginClosing(news);
        awaitClosed(grace);
    }

    private void beginClosing(Runnable news) {
        var open = half;
        half = null;
        var pending = opening;
        opening = null;
        if (pending != null) {
            if (abandoned == null || abandoned.isOver()) {
                abandoned = pending;
            } // else this one has not opened anything, see open()
            var opened = pending.abandon();
            open = open == null ? opened : open;
        }
        if (open != null) {
            closing = new HalfClosing(what, open, news);
        }
    }

    private void awaitClosed(Duration limit) {
        var last = closing;
        if (last == null || !last.await(limit)) {
            return;
        }
        closing = null;
        var failure = last.failure();
        unclosed |= failure != null;
        switch (failure) {
            case null -> {}
            case RuntimeException e -> throw e;
            case Error e -> throw e;
            default -> throw new IllegalStateException(failure);
        }
    }

    /// Closes as [#giveUp], and waits for a half that is just being opened, or closed.
    ///
    /// @throws KvFerryException TIMEOUT when it is not closed in time; may be called again
    @Override
    public void close() {
        beginClosing(() -> {});
        awaitClosed(closeLimit);
        if (isClosing()) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT, what + " is not closed within " + closeLimit);
        }
        var left = abandoned;
        if (left != null) {
            left.close();
        }
    }
}
