// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;

import java.util.concurrent.Semaphore;

/// The product, whose connections of the data plane do nothing while a gate is shut.
final class GatedP2p extends AlteredP2p {
    private final Semaphore gate = new Semaphore(1);

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
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
        gate.acquireUninterruptibly();
    }

    void open() {
        gate.release();
    }
}
