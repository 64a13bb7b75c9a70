// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.testkit;

import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.engine.worker.WorkerHost;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;

import java.util.Map;

/// What the worker processes of tests find. The host configuration names the method of the
/// connector that throws, or is [#SILENT].
public final class TestWorkerHost implements WorkerHost {
    /// The connector completes nothing: no load, no hold.
    public static final String SILENT = "silent";

    private String config = "";

    @Override
    public void configure(String hostConfig) {
        config = hostConfig;
    }

    @Override
    public HostServices services() {
        return HostServices.NONE;
    }

    @Override
    public ModelRunnerProvider runner(String name) {
        return new SyntheticProvider();
    }

    @Override
    public KvConnectorProvider kvConnector(String name) {
        if (name.equals(LateKv.NAME)) {
            return new LateKv();
        }
        var kv = new ScriptedKv();
        if (config.equals(SILENT)) {
            kv.onLoad = ScriptedKv.OnLoad.NEVER;
            kv.holdSteps = -1;
        } else {
            kv.throwIn = config;
        }
        return kv;
    }

    @Override
    public EcConnectorProvider ecConnector(String name) {
        return new ScriptedEc(Map.of());
    }
}
