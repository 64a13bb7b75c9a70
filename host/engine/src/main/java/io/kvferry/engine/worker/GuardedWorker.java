// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.util.Optional;

/// A connector's worker half. Its first exception is reported as a defect; it is then closed and
/// not called again.
///
/// @param <H> the half's interface
abstract class GuardedWorker<H extends WorkerHalf> implements AutoCloseable {
    final ConnectorCapabilities capabilities;
    private final String what;
    private @Nullable H half;
    private @Nullable Failure defect;

    GuardedWorker(String what, @Nullable H half, ConnectorCapabilities capabilities) {
        this.what = what;
        this.half = half;
        this.capabilities = capabilities;
    }

    /// Not guarded: an engine whose connector cannot shake hands does not start.
    final Payload handshake() {
        return half != null && capabilities.has(Feature.HANDSHAKE)
                ? half.handshake()
                : Payload.EMPTY;
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

    final void guard(Runnable call) {
        try {
            call.run();
        } catch (Exception | LinkageError | AssertionError e) { // the one border to the plugin
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
        } catch (Exception | LinkageError | AssertionError e) {
            defect = new Failure(ErrorCode.INTERNAL, defect + "; and close() failed too: " + e);
        }
    }

    /// The half, which nobody gets any more.
    private @Nullable H take() {
        var open = half;
        half = null;
        return open;
    }

    @Override
    public final void close() {
        var open = take();
        if (open != null) {
            open.close();
        }
    }
}
