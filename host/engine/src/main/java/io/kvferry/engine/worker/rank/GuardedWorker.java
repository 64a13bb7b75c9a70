// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.rank;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.recovery.ConnectorChange;
import io.kvferry.toolkit.recovery.Opened;
import io.kvferry.toolkit.recovery.WorkerSlot;

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
    private final WorkerSlot<H> slot;
    private final Runnable wake;
    private @Nullable Failure defect;

    /// @param wake asks the engine for a step
    GuardedWorker(
            String what, @Nullable H half, ConnectorCapabilities capabilities, Runnable wake) {
        this.what = what;
        this.wake = wake;
        this.capabilities = capabilities;
        this.slot = new WorkerSlot<>(what, half, this::handshakeOf);
    }

    /// Not guarded: an engine whose connector cannot shake hands does not start.
    final Payload handshake() {
        var target = half();
        return target == null ? Payload.EMPTY : handshakeOf(target);
    }

    private Payload handshakeOf(H target) {
        return capabilities.has(Feature.HANDSHAKE) ? target.handshake() : Payload.EMPTY;
    }

    /// The half, unless there is none or it was given up.
    final @Nullable H half() {
        return slot.half();
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
    final void change(ConnectorChange change, LongFunction<H> open) {
        closing(() -> slot.change(change, open, wake));
    }

    /// How opening went, once it is done.
    final Optional<Opened> takeOpened() {
        return slot.takeOpened();
    }

    /// Whether a half that was given up is still being closed.
    final boolean isClosing() {
        return slot.isClosing();
    }

    /// Whether threads of a half may touch the cache although [#close] has returned.
    final boolean isUnclosed() {
        return slot.isUnclosed();
    }

    final void guard(Runnable call) {
        try {
            call.run();
        } catch (Throwable e) { // the one border to the plugin
            defect = new Failure(ErrorCode.INTERNAL, what + " failed: " + e);
            closing(() -> slot.giveUp(wake));
        }
    }

    static StepReport checked(@Nullable StepReport report) {
        if (report == null) {
            throw new IllegalStateException("report() answered null");
        }
        return report;
    }

    private void closing(Runnable closing) {
        try {
            closing.run();
        } catch (Throwable e) { // the border to the plugin
            defect =
                    new Failure(
                            ErrorCode.INTERNAL,
                            (defect == null ? what : defect.message())
                                    + "; and close() failed: "
                                    + e);
        }
    }

    /// @throws RuntimeException or an Error of the plugin's; [#isUnclosed] then
    @Override
    public final void close() {
        slot.close();
    }
}
