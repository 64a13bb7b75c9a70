// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.WorkerStep;

import org.jspecify.annotations.Nullable;

/// The worker half of an encoder-cache connector behind the same wall as [KvHalf].
final class EcHalf implements AutoCloseable {
    private @Nullable EcWorkerConnector half;
    private @Nullable Failure defect;

    EcHalf(@Nullable EcWorkerConnector half) {
        this.half = half;
    }

    void begin(WorkerStep step, EncoderCache cache) {
        var target = half;
        if (target != null) {
            guard(() -> target.beginStep(step, cache));
        }
    }

    void save(EcItem item, EncoderOutput output) {
        var target = half;
        if (target != null) {
            guard(() -> target.save(item, output));
        }
    }

    void end(WorkerStep step, RankResult result) {
        var target = half;
        if (target != null) {
            guard(() -> target.endStep(step));
        }
        if (half != null && target != null) {
            guard(() -> result.ecReport(target.report(step)));
        }
        var broken = defect;
        if (broken != null) {
            defect = null;
            result.ecDefect(broken);
        }
    }

    private void guard(Runnable call) {
        try {
            call.run();
        } catch (Exception | LinkageError | AssertionError e) { // the one border to the plugin
            defect =
                    new Failure(
                            ErrorCode.INTERNAL,
                            "the encoder-cache connector's worker half failed: " + e);
            giveUp();
        }
    }

    private void giveUp() {
        var broken = half;
        half = null;
        if (broken != null) {
            try {
                broken.close();
            } catch (Exception | LinkageError | AssertionError e) {
                defect = new Failure(ErrorCode.INTERNAL, defect + "; and close() failed too: " + e);
            }
        }
    }

    @Override
    public void close() {
        var open = half;
        half = null;
        if (open != null) {
            open.close();
        }
    }
}
