// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStores;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
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

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.locks.LockSupport;

/// Which blocks a worker half names when a save fails for some of them.
class PartialSaveTest {
    private static final int BLOCKS = 4;
    private static final int FIRST = 10;
    private static final TransferId SAVE = new TransferId("r", 0, TransferId.Direction.SAVE, 1, "");

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
                            BLOCKS),
                    1,
                    0,
                    1);

    private final String name = "partial-" + UUID.randomUUID();
    private final Arena arena = Arena.ofShared();
    private final ConnectorConfig config =
            ConnectorConfig.of(
                    MooncakeStoreConnectorProvider.NAME,
                    KvRole.BOTH,
                    "e",
                    Map.of("store_name", name, "global_segment_size", 1 << 20));
    private final StoreWorker worker =
            new StoreWorker(
                    new WorkerContext(
                            "i",
                            config,
                            StoreOptions.SCHEMA.read("test", config.extra()),
                            ENGINE,
                            RankInfo.SINGLE,
                            HostServices.NONE),
                    PartialSaveTest::partial);
    private long steps;

    /// A store that is far away. It has no room for the second object, and another writer has begun
    /// the third one.
    private static Store partial(Store real) {
        return (Store)
                Proxy.newProxyInstance(
                        Store.class.getClassLoader(),
                        new Class<?>[] {Store.class},
                        (_, method, arguments) -> {
                            if (method.getName().equals("features")) {
                                return Set.of();
                            }
                            var answer = method.invoke(real, arguments);
                            if (method.getName().equals("put")
                                    && arguments[2] instanceof int[] results
                                    && results.length == BLOCKS) {
                                results[1] = StoreCode.NO_AVAILABLE_HANDLE.number();
                            }
                            if (method.getName().equals("exists")
                                    && arguments[0] instanceof List<?> keys
                                    && arguments[2] instanceof int[] results) {
                                var third = new BlockHash(2, 0, 0, 0).hex();
                                for (int i = 0; i < results.length; i++) {
                                    results[i] =
                                            String.valueOf(keys.get(i)).endsWith(third) ? 0 : 1;
                                }
                            }
                            return answer;
                        });
    }

    @AfterEach
    void close() {
        worker.close();
        EmbeddedStores.closeNow(name);
        arena.close();
    }

    private Completion.Failed save(Set<String> notComputed) {
        var memory = arena.allocate(BLOCKS * 512L, 64);
        worker.registerRegions(
                List.of(new KvRegion("l0", 0, 0, new MemoryRange.Host(memory), BLOCKS, 512, 512)));
        var hashes = new ArrayList<BlockHash>();
        for (int i = 0; i < BLOCKS; i++) {
            hashes.add(new BlockHash(i, 0, 0, 0));
        }
        var move = new StorePlan.Move(SAVE, FIRST, hashes, new int[][] {{0, 1, 2, 3}});
        var plan = new StorePlan(List.of(), List.of(move));
        var limit = Deadline.in(Duration.ofSeconds(60));
        var ended = new ArrayList<Completion>();
        while (ended.isEmpty()) {
            assertThat(limit.passed()).as("the save has ended").isFalse();
            var step = new WorkerStep(++steps, plan.encode(), List.of(), false, limit);
            worker.beginStep(step);
            worker.endStep(step, notComputed);
            ended.addAll(worker.report(step).completions());
            plan = StorePlan.empty();
            LockSupport.parkNanos(1_000_000);
        }
        assertThat(ended).hasSize(1);
        assertThat(ended.getFirst().result()).isInstanceOf(Completion.Failed.class);
        return (Completion.Failed) ended.getFirst().result();
    }

    private static void assertNames(Completion.Failed failed, int... positions) {
        assertThat(failed.blocks())
                .singleElement()
                .satisfies(blocks -> {
                    assertThat(blocks.group()).isZero();
                    assertThat(blocks.positions()).containsExactly(positions);
                });
    }

    @Test
    void thoseThatWereRefusedAndThoseThatAnotherWriterHasNotFinished() {
        var failed = save(Set.of());
        assertThat(failed.failure().code()).isEqualTo(ErrorCode.NO_SPACE);
        assertNames(failed, FIRST + 1, FIRST + 2);
    }

    @Test
    void allThatWereNotComputed() {
        assertNames(save(Set.of("r")), FIRST, FIRST + 1, FIRST + 2, FIRST + 3);
    }
}
