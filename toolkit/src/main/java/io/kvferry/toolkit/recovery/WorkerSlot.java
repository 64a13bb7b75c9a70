// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.util.Optional;
import java.util.function.Function;
import java.util.function.LongFunction;

/// Where the worker half of a connector is on one rank: it can be closed, and another one opened in
/// a thread of its own, while the rank goes on without it.
///
/// Threading: the rank's step thread only.
///
/// @param <H> the half's interface
public final class WorkerSlot<H extends WorkerHalf> implements AutoCloseable {
    private final String what;
    private final Function<H, Payload> handshake;
    private @Nullable H half;
    private @Nullable HalfOpening<H> opening;

    /// One that nobody wants any more, and whose thread may still be at it.
    private @Nullable HalfOpening<H> abandoned;

    private boolean unclosed;

    /// @param what how failures name the half
    /// @param half the first one; null for none
    /// @param handshake asks a half that was opened again
    public WorkerSlot(String what, @Nullable H half, Function<H, Payload> handshake) {
        this.what = what;
        this.half = half;
        this.handshake = handshake;
    }

    /// The half; null while there is none.
    public @Nullable H half() {
        return half;
    }

    /// Does what a step says about the half.
    ///
    /// @param open opens a half for an incarnation of the engine
    /// @param news is called when that is done, on any thread
    /// @throws RuntimeException or an Error of the plugin's close(); [#isUnclosed] then
    public void change(ConnectorChange change, LongFunction<H> open, Runnable news) {
        switch (change.kind()) {
            case NONE -> {}
            case CLOSE -> giveUp();
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
        boolean free = !unclosed && (before == null || before.isOver());
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

    /// Whether threads of a half may touch the cache although it was given up or closed.
    public boolean isUnclosed() {
        var left = abandoned;
        return unclosed || (left != null && !left.isOver());
    }

    /// Closes the half, and what is being opened. Closing is what stops a plugin's threads from
    /// touching the cache.
    ///
    /// @throws RuntimeException or an Error of the plugin's; [#isUnclosed] then
    public void giveUp() {
        boolean before = unclosed;
        unclosed = true;
        var open = half;
        half = null;
        var pending = opening;
        opening = null;
        try {
            if (open != null) {
                open.close();
            }
        } finally {
            if (pending != null) {
                leave(pending);
            }
        }
        unclosed = before;
    }

    private void leave(HalfOpening<H> pending) {
        if (abandoned == null || abandoned.isOver()) {
            abandoned = pending;
        } // else this one has not opened anything, see open()
        pending.abandon();
    }

    /// As [#giveUp], and waits a little for a half that is just being opened.
    @Override
    public void close() {
        giveUp();
        var left = abandoned;
        if (left != null) {
            left.close();
        }
    }
}
