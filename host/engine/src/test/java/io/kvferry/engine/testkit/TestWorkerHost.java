// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.testkit;

import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.engine.worker.WorkerHost;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent;

import java.util.List;
import java.util.Map;

/// What the worker processes of tests find. The host configuration names the method of the
/// connector that throws, or is [#SILENT].
public final class TestWorkerHost implements WorkerHost {
    /// The connector completes nothing: no load, no hold.
    public static final String SILENT = "silent";

    /// The connector's worker halves emit an event of each kind when they are opened.
    public static final String EVENTFUL = "eventful";

    /// The connector has an option `nested` of any JSON, and its worker halves tell what they are
    /// configured with.
    public static final String CONFIGURED = "configured";

    public static final OptionSchema NESTED =
            OptionSchema.of(Option.of("nested", Option.Type.JSON, "anything").asRequired());

    private String config = "";
    private HostServices services = HostServices.NONE;

    @Override
    public void configure(String hostConfig, EventSink events) {
        services = HostServices.NONE.with(events, () -> {});
        config = hostConfig;
    }

    @Override
    public HostServices services() {
        return services;
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
        } else if (config.equals(EVENTFUL)) {
            kv.onOpenWorker =
                    context -> {
                        var by = "rank " + context.rank().rank();
                        eventsBy(by).forEach(context.host().events()::emit);
                    };
        } else if (config.equals(CONFIGURED)) {
            kv.options = NESTED;
            kv.onOpenWorker = context -> context.host().events().emit(configured(context.config()));
        } else {
            kv.throwIn = config;
        }
        return kv;
    }

    /// What a worker half of [#CONFIGURED] tells.
    public static TraceEvent configured(ConnectorConfig config) {
        return new TraceEvent.Incident(
                "", "configured", "worker", Map.of("what", config.extra().toString()));
    }

    /// One of each kind.
    public static List<TraceEvent> eventsBy(String by) {
        return List.of(
                new TraceEvent.Decision(
                        "r", "way", by, "a", List.of(new TraceEvent.Rejected("b", "slow")), 7),
                new TraceEvent.Delivery("r", "way", by, "a", "bytes", 7, 5, 1_000, "cut off"),
                new TraceEvent.Incident("", "peer-lost", by, Map.of("peer", "p", "why", "ü")));
    }

    @Override
    public EcConnectorProvider ecConnector(String name) {
        return new ScriptedEc(Map.of());
    }
}
