// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.gpu.HangingDriver;
import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.Semaphore;

/// The product, whose data plane does nothing while a gate is shut: over host memory its
/// connections wait, over NCCL a call of the driver.
final class GatedP2p extends AlteredP2p {
    private final Semaphore gate = new Semaphore(1);
    private final @Nullable HangingDriver driver;

    GatedP2p() {
        this(TestPlane.HOST);
    }

    GatedP2p(TestPlane plane) {
        driver =
                plane == TestPlane.NCCL
                        ? new HangingDriver(NcclDouble.load().driver(), "mark")
                        : null;
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        if (driver != null) {
            return new P2pWorker(context, TestPlane.open(driver.driver()));
        }
        var host = "127.0.0.1";
        return new P2pWorker(
                context,
                HostPlane.open(
                        "gated",
                        host,
                        host,
                        HostPlane.Ways.ANY,
                        transfer ->
                                Thread.ofVirtual()
                                        .unstarted(() -> {
                                            gate.acquireUninterruptibly();
                                            gate.release();
                                            transfer.run();
                                        })));
    }

    /// What comes from now on waits.
    void shut() {
        if (driver != null) {
            driver.hang();
        } else {
            gate.acquireUninterruptibly();
        }
    }

    void open() {
        if (driver != null) {
            driver.release();
        } else {
            gate.release();
        }
    }
}
