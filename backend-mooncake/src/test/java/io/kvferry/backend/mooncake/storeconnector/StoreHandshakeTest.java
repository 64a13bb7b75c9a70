// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.embedded.EmbeddedStores;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.RankInfo;

import org.junit.jupiter.api.Test;

import java.util.List;
import java.util.Map;

/// A worker with a store of its own would save blocks that no lookup finds.
class StoreHandshakeTest {
    private static final EngineInfo ENGINE =
            new EngineInfo(
                    "m",
                    new CacheNamespace("m", "r", DType.FLOAT16, KvLayout.LBNHC, 1, 16, 1, 1, ""),
                    new KvCacheSpec(
                            List.of(
                                    new KvCacheGroup(
                                            0,
                                            KvCacheGroup.Kind.FULL_ATTENTION,
                                            new KvFormat.Heads(DType.FLOAT16, KvLayout.LBNHC, 1, 8),
                                            List.of("l0"),
                                            16,
                                            512)),
                            4),
                    1,
                    0,
                    1);

    private static ConnectorConfig config(String store) {
        return ConnectorConfig.of(
                MooncakeStoreConnectorProvider.NAME,
                KvRole.BOTH,
                "e",
                Map.of("store_name", store, "global_segment_size", 65_536, "linger", "1ms"));
    }

    private static StoreWorker worker(String store) {
        var config = config(store);
        return new StoreWorker(
                new WorkerContext(
                        "i",
                        config,
                        StoreOptions.SCHEMA.read("test", config.extra()),
                        ENGINE,
                        RankInfo.SINGLE,
                        HostServices.NONE));
    }

    @Test
    void aWorkerWithAnotherStoreIsRefused() {
        var config = config("handshake-a");
        try (var scheduler =
                        new StoreScheduler(
                                new SchedulerContext(
                                        "i",
                                        config,
                                        StoreOptions.SCHEMA.read("test", config.extra()),
                                        ENGINE,
                                        HostServices.NONE));
                var same = worker("handshake-a");
                var other = worker("handshake-b")) {
            assertThatCode(() -> scheduler.onHandshakes(List.of(same.handshake())))
                    .doesNotThrowAnyException();
            assertThatThrownBy(() ->
                            scheduler.onHandshakes(List.of(same.handshake(), other.handshake())))
                    .hasMessageContaining("the worker of rank 1 has another store");
        } finally {
            EmbeddedStores.closeNow("handshake-a");
            EmbeddedStores.closeNow("handshake-b");
        }
    }
}
