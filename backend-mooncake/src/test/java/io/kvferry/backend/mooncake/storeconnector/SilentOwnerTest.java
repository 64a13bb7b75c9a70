// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.remote.SilentOwner;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
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
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

/// Loads from an owner that does not answer, while all limits are minutes.
class SilentOwnerTest {
    private static final Duration LONG = Duration.ofMinutes(10);
    private static final TransferId LOAD = TransferId.load("request", 0);

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

    private final Arena arena = Arena.ofShared();
    private final SilentOwner owner = new SilentOwner();
    private final AtomicReference<Store> store = new AtomicReference<>();
    private final StoreWorker worker = worker();
    private long steps;

    private StoreWorker worker() {
        var config =
                ConnectorConfig.of(
                        MooncakeStoreConnectorProvider.NAME,
                        KvRole.BOTH,
                        "e",
                        Map.of("store", owner.address(), "rpc_timeout", "600s", "lease", "600s"));
        return new StoreWorker(
                new WorkerContext(
                        "i",
                        config,
                        StoreOptions.SCHEMA.read("test", config.extra()),
                        ENGINE,
                        RankInfo.SINGLE,
                        HostServices.NONE),
                opened -> {
                    store.set(opened);
                    return opened;
                });
    }

    @AfterEach
    void close() {
        owner.close(); // first: whoever still waits for it ends
        worker.close();
        arena.close();
    }

    private Map<TransferId, Completion.Result> step(StorePlan plan, List<TransferId> revoked) {
        var step = new WorkerStep(++steps, plan.encode(), revoked, false, Deadline.in(LONG));
        worker.beginStep(step);
        worker.endStep(step, Set.of());
        var results = new HashMap<TransferId, Completion.Result>();
        worker.report(step).completions().forEach(each -> results.put(each.id(), each.result()));
        return results;
    }

    /// Begins to load a block, which the owner does not send.
    private void load() throws Exception {
        var memory = arena.allocate(4 * 512, 64);
        worker.registerRegions(
                List.of(new KvRegion("l0", 0, 0, new MemoryRange.Host(memory), 4, 512, 512)));
        owner.isThere(); // not before: the worker would try it
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (store.get().healthCheck() != 0) {
            assertThat(limit.passed()).as("the session is open").isFalse();
            LockSupport.parkNanos(1_000_000);
        }
        var hashes = List.of(new BlockHash(1, 0, 0, 0));
        var move = new StorePlan.Move(LOAD, 0, hashes, new int[][] {{2}});
        assertThat(step(new StorePlan(List.of(move), List.of()), List.of())).isEmpty();
        owner.awaitQuestion();
    }

    @Test
    void aRevocationDoesNotWaitForIt() throws Exception {
        load();
        var limit = Deadline.in(Duration.ofSeconds(60));
        var ended = step(StorePlan.empty(), List.of(LOAD));
        while (ended.isEmpty()) {
            assertThat(limit.passed()).as("the load has ended").isFalse();
            LockSupport.parkNanos(1_000_000);
            ended = step(StorePlan.empty(), List.of());
        }
        assertThat(ended.get(LOAD)).isInstanceOf(Completion.Revoked.class);
    }

    @Test
    void aCloseDoesNotWaitForIt() throws Exception {
        load();
        CompletableFuture.runAsync(worker::close).get(60, TimeUnit.SECONDS);
    }
}
