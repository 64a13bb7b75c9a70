// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.StepReport;

import org.jspecify.annotations.Nullable;

import java.util.Optional;

/// A connector's worker half behind a wall: the first exception out of it is a defect, after which
/// it is closed and never called again.
///
/// @param <H> the half's interface
abstract class ConnectorHalf<H extends AutoCloseable> implements AutoCloseable {
    private final String what;
    private @Nullable H half;
    private @Nullable Failure defect;

    ConnectorHalf(String what, @Nullable H half) {
        this.what = what;
        this.half = half;
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
    final @Nullable H take() {
        var open = half;
        half = null;
        return open;
    }

    @Override
    public abstract void close();
}
