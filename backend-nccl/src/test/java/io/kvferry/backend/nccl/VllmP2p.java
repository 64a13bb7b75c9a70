// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.gpu.TensorLanes;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;

import java.util.HashMap;
import java.util.Map;

/// Protocol 0, vLLM's, over the C double of NCCL.
public final class VllmP2p extends AlteredP2p {
    private final NcclDouble nccl;

    public VllmP2p(NcclDouble nccl) {
        this.nccl = nccl;
    }

    /// @param shape a value of `vllm_tensor_shape`
    public static Map<String, Object> options(String mode, int port, String shape) {
        var options = new HashMap<>(P2pEngines.options(mode, port));
        options.put("protocol", 0L);
        options.put("vllm_tensor_shape", shape);
        return options;
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        var limits = new TensorLanes.Limits(P2pEngines.SOON, P2pEngines.SOON, 64 << 20, 0);
        return new VllmWorker(
                context, new TensorLanes("test-lanes", nccl.library(), nccl.driver(), limits));
    }
}
