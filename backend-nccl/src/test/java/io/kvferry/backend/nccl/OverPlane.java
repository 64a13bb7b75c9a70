// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;

/// The product over one of the planes.
public final class OverPlane extends AlteredP2p {
    private final TestPlane plane;

    public OverPlane(TestPlane plane) {
        this.plane = plane;
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return new P2pWorker(context, plane.open());
    }
}
