// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedClient;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStores;
import io.kvferry.backend.mooncake.store.embedded.PutSessions;
import io.kvferry.backend.mooncake.storeconnector.keys.BlockKeys;
import io.kvferry.backend.mooncake.storeconnector.keys.BlockNames;
import io.kvferry.backend.mooncake.storeconnector.keys.KeyForm;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.observe.CacheEvent;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/// The scheduler half for a model with a full attention group and a sliding window of 32 tokens,
/// which at the end of a prefix covers two blocks of 16.
class StoreSchedulerTest {
    private static final int BLOCK = 16;
    private static final int BLOCKS = 10;
    private static final int FULL = 0;
    private static final int WINDOW = 1;

    private static final EngineInfo ENGINE =
            new EngineInfo(
                    "m",
                    new CacheNamespace("m", "r", DType.FLOAT16, KvLayout.LBNHC, 1, 16, 1, 1, ""),
                    new KvCacheSpec(
                            List.of(
                                    group(FULL, KvCacheGroup.Kind.FULL_ATTENTION, 0),
                                    group(WINDOW, KvCacheGroup.Kind.SLIDING_WINDOW, 32)),
                            64),
                    1,
                    0,
                    1);

    private static KvCacheGroup group(int index, KvCacheGroup.Kind kind, int window) {
        var format = new KvFormat.Heads(DType.FLOAT16, KvLayout.LBNHC, 1, 8);
        return new KvCacheGroup(index, kind, format, List.of("l" + index), BLOCK, 512, window);
    }

    private final String name = "scheduler-" + UUID.randomUUID();
    private final ConnectorConfig config =
            ConnectorConfig.of(
                    MooncakeStoreConnectorProvider.NAME,
                    KvRole.BOTH,
                    "e",
                    Map.of("store_name", name, "global_segment_size", 1 << 20));
    private final SchedulerContext context =
            new SchedulerContext(
                    "i",
                    config,
                    StoreOptions.SCHEMA.read("test", config.extra()),
                    ENGINE,
                    HostServices.NONE);
    private final StoreScheduler scheduler = new StoreScheduler(context);
    private final BlockKeys keys = new BlockKeys(ENGINE, context.options());
    private final EmbeddedClient client =
            EmbeddedStores.find(name).orElseThrow().client(BlockKeys.identity(ENGINE, ""));
    private final RequestView request = new Request();

    StoreSchedulerTest() {
        scheduler.bindBlockPool(new Pool());
        scheduler.onRequest(request);
    }

    @AfterEach
    void close() {
        scheduler.close();
        EmbeddedStores.closeNow(name);
    }

    private static BlockHash hash(int block) {
        return new BlockHash(block, 1, 2, 3);
    }

    private void put(int group, int... blocks) {
        try (var arena = Arena.ofShared()) {
            var batch = new StoreBatch();
            for (int block : blocks) {
                batch.add(keys.of(hash(block), group, 0)).buffer(arena.allocate(64));
            }
            var results = new int[blocks.length];
            client.put(batch, PutOptions.DEFAULT, results);
            assertThat(results).containsOnly(0);
        }
    }

    private int hit() {
        return switch (scheduler.lookup(request, 0)) {
            case LookupResult.Hit hit -> hit.tokens() / BLOCK;
            case LookupResult.Miss _ -> 0;
            case LookupResult.Pending _ -> throw new AssertionError("pending");
        };
    }

    @Test
    void aSlidingWindowNeedsOnlyWhatItCoversAtTheEnd() {
        put(FULL, 0, 1, 2, 3, 4, 5, 6, 7);
        assertThat(hit()).as("the window has nothing").isZero();
        put(WINDOW, 3, 4);
        assertThat(hit()).as("what the window covers ends there").isEqualTo(5);
        put(WINDOW, 6, 7);
        assertThat(hit()).isEqualTo(8);
        put(WINDOW, 8, 9);
        assertThat(hit()).as("beyond the full group").isEqualTo(8);
    }

    private TransferId savePlanned(int windowFrom) {
        StorePlan plan =
                StorePlan.decode(scheduler.buildPlan(new Step(request, new Table(windowFrom))));
        assertThat(plan.saves()).hasSize(1);
        return plan.saves().getFirst().id();
    }

    private List<CacheEvent> report(TransferId id) {
        var completion = new Completion(id, Completion.ALL_RANKS, new Completion.Completed(1));
        scheduler.onReport(new MergedReport(1, List.of(completion), List.of()));
        return scheduler.drainEvents();
    }

    private static List<BlockHash> hashes(int from, int to) {
        return IntStream.range(from, to).mapToObj(StoreSchedulerTest::hash).toList();
    }

    @Test
    void announcesWhatCanBeReadAndNothingElse() {
        var id = savePlanned(8);
        put(FULL, 0, 1, 2, 4, 5, 6, 7, 8, 9);
        put(WINDOW, 8);
        var begun = new PutSessions.@Nullable Started[1];
        client.putStart(
                List.of(keys.of(hash(3), FULL, 0)),
                new long[] {64},
                List.of(),
                PutOptions.DEFAULT,
                begun,
                new int[1]);
        assertThat(begun[0]).as("another writer has begun with it").isNotNull();
        assertThat(report(id))
                .containsExactly(
                        stored(FULL, Optional.empty(), 0, 3),
                        stored(FULL, Optional.of(hash(3)), 4, 10),
                        stored(WINDOW, Optional.of(hash(7)), 8, 9));
    }

    private static Completion failed(TransferId id, int group, int... positions) {
        return new Completion(
                id,
                Completion.ALL_RANKS,
                new Completion.Failed(
                        new Failure(ErrorCode.NO_SPACE, "full"),
                        List.of(new Completion.FailedBlocks(group, positions))));
    }

    @Test
    void aSaveThatFailedForSomeBlocksIsTriedAgainFromTheFirstOfThese() {
        var id = savePlanned(0);
        scheduler.onReport(new MergedReport(1, List.of(failed(id, WINDOW, 7, 5)), List.of()));
        scheduler.finish(request, new Table(0), FinishReason.STOP);
        StorePlan plan = StorePlan.decode(scheduler.buildPlan(new Idle()));
        assertThat(plan.saves()).hasSize(1);
        assertThat(plan.saves().getFirst().first()).isEqualTo(5);
        assertThat(plan.saves().getFirst().end()).isEqualTo(BLOCKS);
    }

    @Test
    void aSaveThatFailedForBlocksThatItDidNotHaveIsTriedAgainAsAWhole() {
        var id = savePlanned(8);
        scheduler.onReport(new MergedReport(1, List.of(failed(id, WINDOW, 9, 7)), List.of()));
        scheduler.finish(request, new Table(8), FinishReason.STOP);
        StorePlan plan = StorePlan.decode(scheduler.buildPlan(new Idle()));
        assertThat(plan.saves()).hasSize(1);
        assertThat(plan.saves().getFirst().first()).isZero();
    }

    /// The workers of a store that is far away have asked it themselves.
    @Test
    void theRestOfASaveThatFailedForSomeBlocksIsAnnouncedWithoutAQuestion() {
        var far =
                (Store)
                        Proxy.newProxyInstance(
                                Store.class.getClassLoader(),
                                new Class<?>[] {Store.class},
                                (_, method, arguments) ->
                                        switch (method.getName()) {
                                            case "features" -> Set.of();
                                            case "exists" -> throw new IllegalStateException("far");
                                            default -> method.invoke(client, arguments);
                                        });
        try (var queries = new StoreQueries(far, () -> {})) {
            var events = new StoreEvents("i", far, keys, queries);
            var moves = new ArrayList<StorePlan.Move>();
            var ledger =
                    new SaveLedger(
                            new Pool(),
                            ENGINE.cache(),
                            Duration.ofMinutes(1),
                            (_, _, _, _) -> false,
                            moves::add);
            var hashes =
                    KeyForm.of(context.options(), ENGINE).hashes(context.options(), ENGINE, null);
            var tracked = new TrackedRequest(new BlockNames(keys, hashes.get()));
            ledger.saveUpTo(tracked, request, new Table(8), BLOCKS * BLOCK, false);
            ledger.end(failed(moves.getFirst().id(), FULL, 3, 9), events::announce);
            assertThat(events.drain())
                    .containsExactly(
                            stored(FULL, Optional.empty(), 0, 3),
                            stored(FULL, Optional.of(hash(3)), 4, 9),
                            stored(WINDOW, Optional.of(hash(7)), 8, 10));
        }
    }

    private static CacheEvent stored(int group, Optional<BlockHash> parent, int from, int to) {
        return new CacheEvent.Stored("i", LookupResult.Tier.HOST, group, parent, hashes(from, to));
    }

    @Test
    void announcesWhatWent() {
        put(FULL, 0, 1, 2);
        put(WINDOW, 1);
        client.remove(keys.of(hash(2), FULL, 0), true);
        client.remove(keys.of(hash(1), WINDOW, 0), true);
        client.remove(keys.of(hash(0), FULL, 0), true);
        assertThat(scheduler.drainEvents())
                .containsExactly(
                        new CacheEvent.Removed(
                                "i", LookupResult.Tier.HOST, FULL, List.of(hash(2), hash(0))),
                        new CacheEvent.Removed(
                                "i", LookupResult.Tier.HOST, WINDOW, List.of(hash(1))));
        assertThat(scheduler.drainEvents()).isEmpty();
    }

    @Test
    void savesUnderWayDoNotSurviveAReset() throws Exception {
        var id = savePlanned(0);
        var reset = scheduler.resetCache(Deadline.in(Duration.ofMinutes(5)));
        put(FULL, 0, 1);
        put(WINDOW, 0, 1);
        assertThat(reset.toCompletableFuture()).as("the save has not ended").isNotDone();
        assertThat(hit()).as("while it is emptied").isZero();
        assertThat(report(id)).containsExactly(new CacheEvent.Cleared("i"));
        assertThat(reset.toCompletableFuture().get(60, TimeUnit.SECONDS)).isTrue();
        assertThat(client.size(keys.of(hash(0), FULL, 0))).isNegative();
        put(FULL, 0);
        put(WINDOW, 0);
        assertThat(hit()).as("what comes after it counts").isEqualTo(1);
    }

    private static final class Request implements RequestView {
        @Override
        public String id() {
            return "r";
        }

        @Override
        public int tokenCount() {
            return BLOCKS * BLOCK + 5;
        }

        @Override
        public int promptTokenCount() {
            return tokenCount();
        }

        @Override
        public int token(int position) {
            return position;
        }

        @Override
        public int blockHashCount() {
            return BLOCKS;
        }

        @Override
        public BlockHash blockHash(int block) {
            return hash(block);
        }

        @Override
        public int computedTokenCount() {
            return tokenCount();
        }

        @Override
        public TransferParams params() {
            return TransferParams.EMPTY;
        }

        @Override
        public String cacheSalt() {
            return "";
        }

        @Override
        public int attempt() {
            return 0;
        }
    }

    /// @param windowFrom first position at which the window has a block
    private record Table(int windowFrom) implements BlockTable {
        @Override
        public int groups() {
            return 2;
        }

        @Override
        public int count(int group) {
            return BLOCKS + 1;
        }

        @Override
        public int block(int group, int position) {
            return group == WINDOW && position < windowFrom ? NO_BLOCK : position;
        }
    }

    private record Step(RequestView request, BlockTable blocks)
            implements StepView, StepView.ScheduledRequest {
        @Override
        public long number() {
            return 1;
        }

        @Override
        public int scheduledCount() {
            return 1;
        }

        @Override
        public ScheduledRequest scheduled(int index) {
            return this;
        }

        @Override
        public List<String> preempted() {
            return List.of();
        }

        @Override
        public boolean admitted() {
            return true;
        }

        @Override
        public int computedTokens() {
            return 0;
        }

        @Override
        public int scheduledTokens() {
            return BLOCKS * BLOCK;
        }
    }

    /// Schedules nothing.
    private static final class Idle implements StepView {
        @Override
        public long number() {
            return 2;
        }

        @Override
        public int scheduledCount() {
            return 0;
        }

        @Override
        public ScheduledRequest scheduled(int index) {
            throw new IndexOutOfBoundsException(index);
        }

        @Override
        public List<String> preempted() {
            return List.of();
        }
    }

    private static final class Pool implements BlockPool {
        @Override
        public Lease lease(TransferId id, int group, int[] blocks, Deadline deadline) {
            return new Lease() {
                @Override
                public Deadline deadline() {
                    return deadline;
                }

                @Override
                public boolean renew(Deadline later) {
                    return true;
                }

                @Override
                public void close() {}
            };
        }

        @Override
        public Optional<Deadline> renewHold(TransferId id, Deadline deadline) {
            return Optional.empty();
        }

        @Override
        public int freeBlocks() {
            return 64;
        }
    }
}
