// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.DiskConnectorProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;

class DiskWorkerTest {
    private static final int BLOCK = 16;
    private static final KvCacheGroup GROUP =
            new KvCacheGroup(
                    0,
                    KvCacheGroup.Kind.FULL_ATTENTION,
                    new KvFormat.Heads(DType.FLOAT32, KvLayout.LBNHC, 1, 1),
                    List.of("layer"),
                    BLOCK,
                    2L * BLOCK * 4);
    private static final CacheNamespace NAMESPACE =
            new CacheNamespace("m", "test", DType.FLOAT32, KvLayout.LBNHC, 1, BLOCK, 1, 1, "");

    @TempDir Path root;

    private WorkerConnector open() {
        var provider = new DiskConnectorProvider();
        var extra = Map.<String, Object>of("shared_storage_path", root.toString(), "reserve", 0);
        return provider.openWorker(
                new WorkerContext(
                        "disk",
                        ConnectorConfig.of(provider.name(), KvRole.BOTH, "test", extra),
                        provider.options().read("test", extra),
                        new EngineInfo("m", NAMESPACE, new KvCacheSpec(List.of(GROUP), 8), 1, 0, 0),
                        RankInfo.SINGLE,
                        HostServices.NONE));
    }

    @Test
    void aSaveThatIsRevokedInItsOwnStepAndWasNotComputedEndsOnce() {
        var id = new TransferId("r", 0, TransferId.Direction.SAVE, "");
        var move =
                new DiskPlan.Move(
                        id,
                        false,
                        0,
                        List.of(new BlockHash(1, 2, 3, 4)),
                        new int[][] {{0}},
                        1,
                        List.of());
        var plan = new DiskPlan(List.of(), List.of(move), List.of());
        var limit = Deadline.in(Duration.ofSeconds(60));
        try (Arena arena = Arena.ofShared();
                var worker = open()) {
            var memory = new MemoryRange.Host(arena.allocate(8 * GROUP.blockBytes()));
            worker.registerRegions(
                    List.of(
                            new KvRegion(
                                    "layer",
                                    0,
                                    0,
                                    memory,
                                    8,
                                    GROUP.blockBytes(),
                                    GROUP.blockBytes())));
            var step = new WorkerStep(1, plan.encode(), List.of(id), true, limit);
            worker.beginStep(step);
            worker.endStep(step, Set.of("r"));
            var ended = new ArrayList<>(worker.report(step).completions());
            assertThat(ended)
                    .singleElement()
                    .extracting(Completion::result)
                    .isInstanceOf(Completion.Revoked.class);
        }
    }
}
