// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.rank;

import io.kvferry.engine.worker.RankResult;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.WorkerStep;

import org.jspecify.annotations.Nullable;

/// The worker half of an encoder-cache connector.
final class GuardedEcWorker extends GuardedWorker<EcWorkerConnector> {
    GuardedEcWorker(
            @Nullable EcWorkerConnector half, ConnectorCapabilities capabilities, Runnable wake) {
        super("the encoder-cache connector's worker half", half, capabilities, wake);
    }

    void begin(WorkerStep step, EncoderCache cache) {
        var target = half();
        if (target != null) {
            guard(() -> target.beginStep(step, cache));
        }
    }

    void save(EcItem item, EncoderOutput output) {
        var target = half();
        if (target != null) {
            guard(() -> target.save(item, output));
        }
    }

    void end(WorkerStep step, RankResult result) {
        var target = half();
        if (target != null) {
            guard(() -> target.endStep(step));
        }
        if (half() != null && target != null) {
            guard(() -> result.ecReport(checked(target.report(step))));
        }
        takeDefect().ifPresent(result::ecDefect);
    }
}
