// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.testkit;

import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.engine.worker.WorkerHost;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.observe.EventSink;

/// The host of workers in threads of a test, which share connectors with it.
public record KvWorkerHost(KvConnectorProvider kv, EcConnectorProvider ec, HostServices[] opened)
        implements WorkerHost {
    public KvWorkerHost(KvConnectorProvider kv, EcConnectorProvider ec) {
        this(kv, ec, new HostServices[] {HostServices.NONE});
    }

    @Override
    public void configure(String hostConfig, EventSink events) {
        opened[0] = HostServices.NONE.with(events, () -> {});
    }

    @Override
    public HostServices services() {
        return opened[0];
    }

    @Override
    public ModelRunnerProvider runner(String name) {
        return new SyntheticProvider();
    }

    @Override
    public KvConnectorProvider kvConnector(String name) {
        return kv;
    }

    @Override
    public EcConnectorProvider ecConnector(String name) {
        return ec;
    }
}
