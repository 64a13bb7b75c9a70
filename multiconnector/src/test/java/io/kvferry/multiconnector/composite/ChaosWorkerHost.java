// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.worker.WorkerHost;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.observe.EventSink;

import org.jspecify.annotations.Nullable;

/// What the workers of [CompositeInterleavingTest] find: the services of the test, or, in a process
/// of their own, the scene of the seed in the host configuration.
public final class ChaosWorkerHost implements WorkerHost {
    private final FlakyModel model;
    private HostServices services;
    private @Nullable ChaosScene scene;

    /// In a worker process.
    public ChaosWorkerHost() {
        this(new FlakyModel(0, false), HostServices.NONE, null);
    }

    ChaosWorkerHost(FlakyModel model, HostServices services, @Nullable ChaosScene scene) {
        this.model = model;
        this.services = services;
        this.scene = scene;
    }

    @Override
    public void configure(String hostConfig, EventSink events) {
        if (!hostConfig.isEmpty()) {
            var own = new ChaosScene(Long.parseLong(hostConfig), true);
            services = Kvferry.open(own.catalog(), events).services();
            scene = own;
        }
    }

    @Override
    public HostServices services() {
        return services;
    }

    @Override
    public ModelRunnerProvider runner(String name) {
        return model;
    }

    @Override
    public KvConnectorProvider kvConnector(String name) {
        var own = scene;
        return own != null && own.bare ? own.leaves.getFirst() : new MultiConnectorProvider();
    }

    @Override
    public EcConnectorProvider ecConnector(String name) {
        return new MultiEcConnectorProvider();
    }
}
