// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.observe.TraceEvent;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.List;

/// Memory for the cache comes from one child of a composite at most.
class CacheMemoryTest {
    private static final String CHILD =
            """
            {"kv_connector": "MemoryConnector", "name": "%s", "kv_connector_extra_config": {"memory": "%s"}}\
            """;

    private final List<TraceEvent> events = new ArrayList<>();

    private static EngineInfo engine() {
        var group =
                new KvCacheGroup(
                        0,
                        KvCacheGroup.Kind.FULL_ATTENTION,
                        new KvFormat.Heads(DType.FLOAT32, KvLayout.LBNHC, 1, 2),
                        List.of("l0"),
                        4,
                        64);
        var spec = new KvCacheSpec(List.of(group), 8);
        var namespace = new CacheNamespace("m", "r", DType.FLOAT32, KvLayout.LBNHC, 1, 4, 1, 1, "");
        return new EngineInfo("m", namespace, spec, 1, 0, 1);
    }

    private long provided(String... children) {
        try (var kvferry = Kvferry.open(PluginCatalog.ofClassPath(), events::add)) {
            var selected = kvferry.kv(Rig.multi("", children));
            var half = selected.openWorker(engine(), RankInfo.SINGLE);
            var memory = half.provideMemory(10_000);
            half.close();
            memory.ifPresent(one -> {
                one.range().segment().fill((byte) 1); // it outlives the half
                one.close();
            });
            return memory.map(one -> one.range().length()).orElse(0L);
        }
    }

    @Test
    void theFirstChildThatHasMemoryProvidesItAndTheOthersAreNamed() {
        long bytes =
                provided(
                        CHILD.formatted("plain", "engine"),
                        CHILD.formatted("first", "connector"),
                        CHILD.formatted("second", "connector"));

        assertThat(bytes).isEqualTo(10_000);
        assertThat(events)
                .containsExactly(
                        new TraceEvent.Decision(
                                "",
                                "cache-memory",
                                "MultiConnector",
                                "first",
                                List.of(
                                        new TraceEvent.Rejected(
                                                "second", "the cache lies in memory of first")),
                                10_000));
    }

    @Test
    void theEngineIsLeftToAllocateWhereNoChildHasMemory() {
        assertThat(provided(CHILD.formatted("plain", "engine"))).isZero();
        assertThat(events).isEmpty();
    }
}
