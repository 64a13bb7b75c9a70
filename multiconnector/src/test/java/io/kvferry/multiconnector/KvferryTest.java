// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.multiconnector.composite.MultiConnectorProvider;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Availability;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.tck.faults.ScriptedConnector;

import org.junit.jupiter.api.Test;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;

/// The entry for engines, on the class path as it is.
class KvferryTest {
    private static final CacheNamespace NAMESPACE =
            new CacheNamespace("m", "r", DType.FLOAT32, KvLayout.LBNHC, 1, 4, 1, 1, "");

    private static KvCacheSpec spec(int groups) {
        var all = new ArrayList<KvCacheGroup>();
        for (int i = 0; i < groups; i++) {
            all.add(
                    new KvCacheGroup(
                            i,
                            KvCacheGroup.Kind.FULL_ATTENTION,
                            new KvFormat.Heads(DType.FLOAT32, KvLayout.LBNHC, 1, 2),
                            List.of("l" + i),
                            4,
                            64));
        }
        return new KvCacheSpec(all, 8);
    }

    private static EngineInfo engine(int groups) {
        return new EngineInfo("m", NAMESPACE, spec(groups), 1, 0, 7);
    }

    private static Kvferry with(KvConnectorProvider provider) {
        return Kvferry.open(
                PluginCatalog.ofClassPath().with(KvConnectorProvider.class, provider),
                EventSink.NONE);
    }

    @Test
    void opensBothHalvesOfAConnectorOnTheClassPath() {
        try (var kvferry = Kvferry.open(PluginCatalog.ofClassPath(), EventSink.NONE)) {
            var selected =
                    kvferry.kv(
                            """
                            {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config":
                             {"connectors": [{"kv_connector": "MemoryConnector"}]}}\
                            """);

            try (var scheduler = selected.openScheduler(engine(1));
                    var worker = selected.openWorker(engine(1), RankInfo.SINGLE)) {
                assertThat(scheduler).isNotNull();
                assertThat(worker).isNotNull();
            }
        }
    }

    @Test
    void refusesAConnectorWhoseLayoutTheEngineDoesNotHave() {
        var picky =
                new ScriptedConnector(
                        "Picky", new ConnectorCapabilities(Set.of(), Optional.of(KvLayout.LBHNC)));
        try (var kvferry = with(picky)) {
            var selected =
                    kvferry.kv(
                            """
                            {"kv_connector": "Picky", "kv_role": "kv_both"}\
                            """);

            assertThatThrownBy(() -> selected.openScheduler(engine(1)))
                    .hasMessageContaining("Picky needs KV layout LBHNC, the engine's is LBNHC");
        }
    }

    @Test
    void refusesSeveralGroupsForAConnectorThatKnowsOne() {
        try (var kvferry = with(new ScriptedConnector("One", ConnectorCapabilities.of()))) {
            var selected =
                    kvferry.kv(
                            """
                            {"kv_connector": "One", "kv_role": "kv_both"}\
                            """);

            assertThatThrownBy(() -> selected.openWorker(engine(2), RankInfo.SINGLE))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.INCOMPATIBLE))
                    .hasMessageContaining("SEVERAL_GROUPS");
        }
    }

    @Test
    void saysWhatIsMissingForAPluginThatCannotWorkHere() {
        try (var kvferry = with(new Unavailable())) {
            assertThatThrownBy(() ->
                            kvferry.kv(
                                    """
                                    {"kv_connector": "Needy", "kv_role": "kv_both"}\
                                    """))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE))
                    .hasMessageContaining(
                            "Needy cannot work here: libneedy.so is missing. Install needy");
        }
    }

    @Test
    void readsOptionsStrictlyBeforeAnythingIsOpened() {
        try (var kvferry = with(new ScriptedConnector("S", ConnectorCapabilities.of()))) {
            assertThatThrownBy(() ->
                            kvferry.kv(
                                    """
                                    {"kv_connector": "S", "kv_role": "kv_both", "kv_connector_extra_config": {"nota": "x"}}\
                                    """))
                    .hasMessageContaining(
                            "kv_connector_extra_config of S: unknown key \"nota\"; did you mean \"note\"?");
        }
    }

    @Test
    void offersOneStagingPoolAndTellsWhoKeptBuffers() {
        var events = new ArrayList<TraceEvent>();
        try (var kvferry = Kvferry.open(PluginCatalog.ofClassPath(), events::add, 1 << 20)) {
            var pool = kvferry.services().stagingPool();
            assertThat(kvferry.services().with(EventSink.NONE, () -> {}).stagingPool())
                    .isSameAs(pool);
            assertThat(pool.capacity()).isEqualTo(1 << 20);
            pool.free(pool.allocate("Tidy", 4096));
            pool.allocate("Leaky", 5000);
        }
        assertThat(events)
                .containsExactly(
                        new TraceEvent.Incident(
                                "", "staging-leak", "host", Map.of("Leaky", "8192 bytes")));
    }

    @Test
    void childrenOfACompositeWakeTheEngineThatOpenedIt() {
        var hosts = new ArrayList<HostServices>();
        var scripted = new ScriptedConnector("Child", ConnectorCapabilities.of());
        var child =
                (KvConnectorProvider)
                        Proxy.newProxyInstance(
                                KvConnectorProvider.class.getClassLoader(),
                                new Class<?>[] {KvConnectorProvider.class},
                                (_, method, args) -> {
                                    if (method.getName().equals("openWorker")) {
                                        hosts.add(((WorkerContext) args[0]).host());
                                    }
                                    return method.invoke(scripted, args);
                                });
        var woken = new AtomicInteger();
        try (var kvferry = with(child)) {
            var config =
                    kvferry.kv(
                                    """
                                    {"kv_connector": "MultiConnector", "kv_role": "kv_both",
                                     "kv_connector_extra_config": {"connectors": [{"kv_connector": "Child"}]}}\
                                    """)
                            .config();
            var host = kvferry.services().with(EventSink.NONE, woken::incrementAndGet);
            new MultiConnectorProvider()
                    .openWorker(
                            new WorkerContext(
                                    "MultiConnector",
                                    config,
                                    new MultiConnectorProvider()
                                            .options()
                                            .read("test", config.extra()),
                                    engine(1),
                                    RankInfo.SINGLE,
                                    host))
                    .close();
            hosts.getLast().wake();
        }
        assertThat(woken).hasValue(1);
    }

    /// Never available.
    private static final class Unavailable implements KvConnectorProvider {
        @Override
        public String name() {
            return "Needy";
        }

        @Override
        public String description() {
            return "cannot work";
        }

        @Override
        public SpiVersion.Range spiVersions() {
            return SpiVersion.Range.from(1, 0);
        }

        @Override
        public OptionSchema options() {
            return OptionSchema.NONE;
        }

        @Override
        public Availability availability() {
            return new Availability.Unavailable("libneedy.so is missing", "Install needy");
        }

        @Override
        public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
            return ConnectorCapabilities.of();
        }

        @Override
        public SchedulerConnector openScheduler(SchedulerContext context) {
            throw new AssertionError("opened although unavailable");
        }

        @Override
        public WorkerConnector openWorker(WorkerContext context) {
            throw new AssertionError("opened although unavailable");
        }
    }
}
