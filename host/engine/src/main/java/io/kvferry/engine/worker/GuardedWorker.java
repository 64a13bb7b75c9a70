// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.util.Optional;
import java.util.function.LongFunction;

/// A connector's worker half. Its first exception is reported as a defect; it is then closed and
/// not called again.
///
/// @param <H> the half's interface
abstract class GuardedWorker<H extends WorkerHalf> implements AutoCloseable {
    final ConnectorCapabilities capabilities;
    private final String what;
    private @Nullable H half;
    private @Nullable Failure defect;
    private @Nullable HalfOpening<H> opening;

    /// Whether a half did not let itself be closed, so that its threads may still touch the cache.
    private boolean unclosed;

    GuardedWorker(String what, @Nullable H half, ConnectorCapabilities capabilities) {
        this.what = what;
        this.half = half;
        this.capabilities = capabilities;
    }

    /// Not guarded: an engine whose connector cannot shake hands does not start.
    final Payload handshake() {
        var target = half;
        return target == null ? Payload.EMPTY : handshakeOf(target);
    }

    private Payload handshakeOf(H target) {
        return capabilities.has(Feature.HANDSHAKE) ? target.handshake() : Payload.EMPTY;
    }

    /// The half, unless there is none or it was given up.
    final @Nullable H half() {
        return half;
    }

    /// Why the half was given up, once.
    final Optional<Failure> takeDefect() {
        var broken = defect;
        defect = null;
        return Optional.ofNullable(broken);
    }

    /// Does what the step says about the half.
    ///
    /// @param open opens a half for an incarnation of the engine
    /// @param news is called when that is done
    final void change(ConnectorChange change, LongFunction<H> open, Runnable news) {
        switch (change.kind()) {
            case NONE -> {}
            case CLOSE -> giveUp();
            case OPEN ->
                    opening =
                            new HalfOpening<>(
                                    what,
                                    () -> {
                                        requireClosed();
                                        return open.apply(change.incarnation());
                                    },
                                    this::handshakeOf,
                                    news);
            case USE -> {
                var done = opening;
                half = done == null ? null : done.take();
                opening = null;
            }
        }
    }

    private void requireClosed() {
        if (unclosed) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE, "the half before it could not be closed");
        }
    }

    /// How opening went, once it is done.
    final Optional<RankResult.Opened> takeOpened() {
        var current = opening;
        return current == null ? Optional.empty() : current.takeOpened();
    }

    /// Whether threads of a half may touch the cache although [#close] has returned.
    final boolean isUnclosed() {
        return unclosed;
    }

    final void guard(Runnable call) {
        try {
            call.run();
        } catch (Throwable e) { // the one border to the plugin
            defect = new Failure(ErrorCode.INTERNAL, what + " failed: " + e);
            giveUp();
        }
    }

    static StepReport checked(@Nullable StepReport report) {
        if (report == null) {
            throw new IllegalStateException("report() answered null");
        }
        return report;
    }

    /// Closing is what stops the plugin's threads from touching the cache.
    private void giveUp() {
        try {
            close();
        } catch (Throwable e) { // the border to the plugin
            defect =
                    new Failure(
                            ErrorCode.INTERNAL,
                            (defect == null ? what : defect.message())
                                    + "; and close() failed: "
                                    + e);
        }
    }

    /// The half, which nobody gets any more.
    private @Nullable H take() {
        var open = half;
        half = null;
        return open;
    }

    /// @throws RuntimeException or an Error of the plugin's; [#isUnclosed] then
    @Override
    public final void close() {
        boolean before = unclosed;
        unclosed = true;
        var pending = opening;
        var open = take();
        try (var _ = pending) {
            opening = null;
            if (open != null) {
                open.close();
            }
        }
        unclosed = before;
    }
}
