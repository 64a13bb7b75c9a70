// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.worker.WorkerHost;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.observe.EventSink;

/// What the workers of [CompositeInterleavingTest] find: the services of the test, or, in a process
/// of their own, the scene of the seed in the host configuration.
public final class ChaosWorkerHost implements WorkerHost {
    private final FlakyModel model;
    private HostServices services;

    /// In a worker process.
    public ChaosWorkerHost() {
        this(new FlakyModel(0, false), HostServices.NONE);
    }

    ChaosWorkerHost(FlakyModel model, HostServices services) {
        this.model = model;
        this.services = services;
    }

    @Override
    public void configure(String hostConfig, EventSink events) {
        if (!hostConfig.isEmpty()) {
            var scene = new ChaosScene(Long.parseLong(hostConfig), true);
            services = Kvferry.open(scene.catalog(), events).services();
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
        return new MultiConnectorProvider();
    }

    @Override
    public EcConnectorProvider ecConnector(String name) {
        return new MultiEcConnectorProvider();
    }
}
