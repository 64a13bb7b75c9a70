// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.cluster.ClusterStore;
import io.kvferry.backend.mooncake.store.cluster.StoreDouble;
import io.kvferry.backend.mooncake.store.cluster.StoreDouble.Count;
import io.kvferry.backend.mooncake.store.cluster.StoreDouble.Knob;
import io.kvferry.backend.mooncake.storeconnector.keys.BlockKeys;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// Lookups in a store beyond this process that answers late or not at all.
class LookupTimeoutTest {
    private static final Duration SOON = Duration.ofSeconds(55);
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
                                            List.of("l"),
                                            TokensRequest.BLOCK,
                                            512)),
                            64),
                    1,
                    0,
                    1);

    private final StoreDouble mooncake = StoreDouble.load();

    @AfterEach
    void reset() {
        mooncake.set(Knob.HANG, 0);
        mooncake.await(Count.HANGING, 0);
        mooncake.assertClean();
        mooncake.reset();
    }

    private SchedulerContext context(String lookupTimeout) {
        var config =
                ConnectorConfig.of(
                        MooncakeStoreConnectorProvider.NAME,
                        KvRole.BOTH,
                        "e",
                        Map.of(
                                "store",
                                "mooncake://127.0.0.1:50051",
                                "library",
                                mooncake.file().toString(),
                                "rpc_timeout",
                                "50s",
                                "lookup_timeout",
                                lookupTimeout));
        return new SchedulerContext(
                "i",
                config,
                StoreOptions.SCHEMA.read("test", config.extra()),
                ENGINE,
                HostServices.NONE);
    }

    private static LookupResult awaitAnswer(StoreScheduler scheduler, RequestView request) {
        var limit = Deadline.in(SOON);
        while (true) {
            var answer = scheduler.lookup(request, 0);
            if (!(answer instanceof LookupResult.Pending)) {
                return answer;
            }
            assertThat(limit.passed()).as("the lookup stays pending").isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    private static long timeouts(StoreScheduler scheduler) {
        return scheduler
                .drainStats()
                .counters()
                .getOrDefault("mooncake_store_lookup_timeouts_total", 0L);
    }

    private void put(SchedulerContext context, RequestView request) {
        var keys = new BlockKeys(ENGINE, context.options());
        try (var arena = Arena.ofShared();
                var store = ClusterStore.open(mooncake.config(), BlockKeys.identity(ENGINE, ""))) {
            var batch = new StoreBatch();
            for (int block = 0; block < request.blockHashCount(); block++) {
                batch.add(keys.of(request.blockHash(block), 0, 0)).buffer(arena.allocate(512));
            }
            var results = new int[batch.size()];
            store.put(batch, PutOptions.DEFAULT, results);
            assertThat(results).containsOnly(0);
        }
    }

    @Test
    void aLookupThatIsNotAnsweredInTimeIsAMissAndLaterOnesAreAnsweredAgain() {
        var context = context("20ms");
        var scheduler = new StoreScheduler(context);
        try {
            mooncake.set(Knob.HANG, 1);
            var first = TokensRequest.of("first", 0, 40);
            scheduler.onRequest(first);
            assertThat(awaitAnswer(scheduler, first)).isEqualTo(LookupResult.MISS);
            assertThat(awaitAnswer(scheduler, first))
                    .as("asked again")
                    .isEqualTo(LookupResult.MISS);
            assertThat(timeouts(scheduler)).isPositive();
            mooncake.set(Knob.HANG, 0);
        } finally {
            scheduler.close();
        }
    }

    @Test
    void aLateAnswerAndWaitingOnesOfGoneRequestsDoNotHoldUpTheNext() {
        var patient = context("50s");
        var request = TokensRequest.of("next", 0, 40);
        put(patient, request);
        var scheduler = new StoreScheduler(patient);
        try {
            mooncake.set(Knob.HANG, 1);
            var first = TokensRequest.of("first", 0, 40);
            scheduler.onRequest(first);
            assertThat(scheduler.lookup(first, 0)).isInstanceOf(LookupResult.Pending.class);
            mooncake.await(Count.HANGING, 1);
            for (int i = 0; i < 100; i++) {
                var gone = TokensRequest.of("gone-" + i, 0, 40);
                scheduler.onRequest(gone);
                assertThat(scheduler.lookup(gone, 0)).isInstanceOf(LookupResult.Pending.class);
                scheduler.finish(gone, BlockTable.EMPTY, FinishReason.ABORT);
            }
            long before = mooncake.count(Count.CALLS);
            mooncake.set(Knob.HANG, 0);
            scheduler.onRequest(request);
            assertThat(awaitAnswer(scheduler, request)).isInstanceOf(LookupResult.Hit.class);
            assertThat(mooncake.count(Count.CALLS) - before)
                    .as("questions of requests that are gone are not asked")
                    .isLessThan(100);
            assertThat(timeouts(scheduler)).isZero();
        } finally {
            mooncake.set(Knob.HANG, 0);
            scheduler.close();
        }
    }
}
