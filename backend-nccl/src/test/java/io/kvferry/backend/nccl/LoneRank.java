// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.engines.P2pEngines;
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
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.wire.Payload;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/// One rank of the connector, and its cache.
final class LoneRank implements AutoCloseable {
    private static final Duration SOON = Duration.ofSeconds(60);
    private static final Duration LONG = Duration.ofMinutes(10);
    private static final int BLOCKS = 16;
    private static final int BLOCK_BYTES = 4096;
    private static final int LAYERS = 2;

    final String address;
    final Map<TransferId, Completion.Result> results = new HashMap<>();
    private final WorkerConnector worker;
    private final List<KvRegion> regions = new ArrayList<>();
    private long steps;

    /// @param limit of what the rank waits for; a transfer may take twice as long
    LoneRank(Arena arena, String mode, KvRole role, StagingPool pool, Duration limit) {
        var names = names();
        for (int layer = 0; layer < LAYERS; layer++) {
            var memory = new MemoryRange.Host(arena.allocate(BLOCKS * BLOCK_BYTES, 64));
            regions.add(
                    new KvRegion(
                            names.get(layer), layer, 0, memory, BLOCKS, BLOCK_BYTES, BLOCK_BYTES));
        }
        var options = P2pEngines.options(mode, 0);
        options.put("data_plane", "tcp");
        options.put("transfer_timeout", 2 * limit.toMillis() + "ms");
        for (var each : List.of("receive_timeout", "push_timeout", "staged_timeout")) {
            options.put(each, limit.toMillis() + "ms");
        }
        worker =
                new P2pNcclConnectorProvider()
                        .openWorker(context(role, options, RankInfo.SINGLE, P2pEngines.host(pool)));
        worker.registerRegions(regions);
        address = P2pWorker.readHandshake(worker.handshake());
    }

    private static List<String> names() {
        return IntStream.range(0, LAYERS).mapToObj(layer -> "l" + layer).toList();
    }

    /// What a rank with the cache of these tests is opened with.
    static WorkerContext context(
            KvRole role, Map<String, Object> options, RankInfo rank, HostServices host) {
        var format = new KvFormat.Heads(DType.UINT8, KvLayout.LBNHC, 1, BLOCK_BYTES / 32);
        var group =
                new KvCacheGroup(
                        0, KvCacheGroup.Kind.FULL_ATTENTION, format, names(), 16, BLOCK_BYTES);
        var namespace = new CacheNamespace("m", "r", DType.UINT8, KvLayout.LBNHC, 1, 16, 1, 1, "");
        var engine =
                new EngineInfo(
                        "m",
                        namespace,
                        new KvCacheSpec(List.of(group), BLOCKS),
                        1,
                        0,
                        1 + role.ordinal());
        var config = ConnectorConfig.of("P2pNcclConnector", role, role.name(), options);
        return new WorkerContext(
                "p2p", config, P2pSettings.SCHEMA.read("test", config.extra()), engine, rank, host);
    }

    WorkerStep step(P2pPlan plan) {
        return new WorkerStep(++steps, plan.encode(), List.of(), true, Deadline.in(LONG));
    }

    WorkerStep revocation(TransferId id) {
        return new WorkerStep(++steps, Payload.EMPTY, List.of(id), false, Deadline.in(LONG));
    }

    void take(WorkerStep step) {
        worker.beginStep(step);
        worker.endStep(step, Set.of());
        report(step);
    }

    /// A step without a report, false where it throws.
    boolean takes(WorkerStep step) {
        boolean begun = false;
        try {
            worker.beginStep(step);
            begun = true;
            worker.endStep(step, Set.of());
        } catch (RuntimeException | Error _) {
            Thread.onSpinWait();
        }
        return begun;
    }

    void report() {
        take(step(P2pPlan.decode(Payload.EMPTY)));
    }

    private void report(WorkerStep step) {
        for (var completion : worker.report(step).completions()) {
            assertThat(results.put(completion.id(), completion.result()))
                    .as("%s is completed twice", completion.id())
                    .isNull();
        }
    }

    static void await(BooleanSupplier condition, Supplier<String> trouble) {
        var limit = Deadline.in(SOON);
        while (!condition.getAsBoolean()) {
            assertThat(limit.passed()).as(trouble).isFalse();
            LockSupport.parkNanos(10_000_000);
        }
    }

    Completion.Result await(TransferId id) {
        await(
                () -> {
                    report();
                    return results.containsKey(id);
                },
                () -> "no end of " + id);
        return Objects.requireNonNull(results.get(id));
    }

    void write(int[] blocks, int seed) {
        each(blocks, (block, at) -> block.copyFrom(MemorySegment.ofArray(bytes(at, seed))));
    }

    void assertHolds(int[] blocks, int seed) {
        each(
                blocks,
                (block, at) ->
                        assertThat(block.mismatch(MemorySegment.ofArray(bytes(at, seed))))
                                .as("first wrong byte at %d", at)
                                .isEqualTo(-1));
    }

    private void each(int[] blocks, BiConsumer<MemorySegment, Integer> visitor) {
        for (var region : regions) {
            for (int i = 0; i < blocks.length; i++) {
                var block = region.segment().asSlice(region.offset(blocks[i]), BLOCK_BYTES);
                visitor.accept(block, region.layerIndex() * blocks.length + i);
            }
        }
    }

    private static byte[] bytes(int at, int seed) {
        var bytes = new byte[BLOCK_BYTES];
        new Random(seed * 1000L + at).nextBytes(bytes);
        return bytes;
    }

    @Override
    public void close() {
        worker.close();
    }

    /// How many ended in which way.
    @Override
    public String toString() {
        return results.values().stream()
                .collect(
                        Collectors.groupingBy(
                                result ->
                                        result instanceof Completion.Failed(var failure, _)
                                                ? failure.code().name()
                                                : result.getClass().getSimpleName(),
                                TreeMap::new,
                                Collectors.counting()))
                .toString();
    }
}
