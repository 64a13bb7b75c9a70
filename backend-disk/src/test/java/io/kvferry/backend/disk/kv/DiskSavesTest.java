// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.backend.disk.store.StoreListener;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.IntStream;

/// Saves that do not start, or do not end well.
class DiskSavesTest {
    private static final int BLOCK_TOKENS = 4;
    private static final int BLOCKS = 4;
    private static final int GROUPS = 2;

    @TempDir Path root;

    /// Leases that are open; the lease of one group throws.
    private static final class FailingPool implements BlockPool {
        private final int failing;
        private int open;

        FailingPool(int failing) {
            this.failing = failing;
        }

        @Override
        public Lease lease(TransferId id, int group, int[] blocks, Deadline deadline) {
            if (group == failing) {
                throw new OutOfMemoryError("scripted");
            }
            open++;
            return new Lease() {
                @Override
                public Deadline deadline() {
                    return deadline;
                }

                @Override
                public boolean renew(Deadline later) {
                    return false;
                }

                @Override
                public void close() {
                    open--;
                }
            };
        }

        @Override
        public Optional<Deadline> renewHold(TransferId id, Deadline deadline) {
            return Optional.empty();
        }

        @Override
        public int freeBlocks() {
            return BLOCKS;
        }
    }

    record Request() implements RequestView {
        @Override
        public String id() {
            return "r";
        }

        @Override
        public int tokenCount() {
            return BLOCKS * BLOCK_TOKENS;
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
            return new BlockHash(block, 1, 2, 3);
        }

        @Override
        public int computedTokenCount() {
            return 0;
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

    /// @param window position before which group 1 has no memory any more
    private record Table(int window) implements BlockTable {
        @Override
        public int groups() {
            return GROUPS;
        }

        @Override
        public int count(int group) {
            return BLOCKS;
        }

        @Override
        public int block(int group, int position) {
            return group == 1 && position < window ? NO_BLOCK : position;
        }
    }

    private static KvCacheGroup group(int index) {
        return new KvCacheGroup(
                index,
                KvCacheGroup.Kind.FULL_ATTENTION,
                new KvFormat.Heads(DType.UINT8, KvLayout.LBHNC, 1, 8),
                List.of("layer." + index),
                BLOCK_TOKENS,
                64);
    }

    /// Otherwise the engine lacks the blocks until the deadline of the leases. The last case is no
    /// memory for the plan.
    @ParameterizedTest
    @ValueSource(ints = {1, GROUPS})
    void givesItsLeasesBackWhenASaveDoesNotStart(int failing) {
        var pool = new FailingPool(failing);
        var layout = new FileLayout(GROUPS, 1, 1);
        var config = StoreConfig.of(root, "test").withReserveBytes(0);
        try (var store = BlockStore.openScratch(config, StoreListener.NONE)) {
            var saves =
                    saves(
                            store,
                            pool,
                            layout,
                            _ -> {
                                throw new OutOfMemoryError("scripted");
                            });
            assertThatThrownBy(() -> saveAll(saves, layout)).isInstanceOf(OutOfMemoryError.class);
            assertThat(pool.open).isZero();
            assertThat(saves.drain()).as("nothing is under way").isDone();
        }
    }

    private static DiskSaves saves(
            BlockStore store, BlockPool pool, FileLayout layout, Consumer<DiskPlan.Move> plan) {
        return new DiskSaves(
                store,
                pool,
                layout,
                new RunIndex(),
                new KvCacheSpec(List.of(group(0), group(1)), BLOCKS),
                Duration.ofMinutes(5),
                plan,
                store::touch);
    }

    private static void saveAll(DiskSaves saves, FileLayout layout) {
        saveAll(saves, layout, new Table(0));
    }

    private static void saveAll(DiskSaves saves, FileLayout layout, Table table) {
        saves.saveUpTo(new Tracked(layout), new Request(), table, BLOCKS * BLOCK_TOKENS, true);
    }

    /// The files that a save of four blocks may write, single files and those of runs.
    private static List<BlockKey> all(FileLayout layout) {
        var request = new Request();
        var keys = new ArrayList<BlockKey>();
        for (int block = 0; block < BLOCKS; block++) {
            keys.addAll(layout.single(request.blockHash(block), block));
            if ((block + 1) % layout.run() == 0) {
                keys.addAll(layout.run(request.blockHash(block), layout.start(block)));
            }
        }
        return keys;
    }

    /// Makes these files, as a worker does.
    private static void write(StoreConfig config, List<BlockKey> keys) {
        try (var worker = BlockStore.openScratch(config, StoreListener.NONE)) {
            for (var key : keys) {
                var done = new CompletableFuture<BlockResult>();
                assertThat(
                                worker.save(
                                        key,
                                        List.of(MemorySegment.ofArray(new byte[8])),
                                        Deadline.in(Duration.ofSeconds(60)),
                                        (_, result) -> done.complete(result),
                                        0))
                        .isTrue();
                assertThat(done.orTimeout(60, TimeUnit.SECONDS).join())
                        .isInstanceOf(BlockResult.Done.class);
            }
        }
    }

    /// Positions that are stored after a save of four blocks has failed.
    ///
    /// @param failed positions that the failure names, by group
    private List<Integer> storedAfter(FileLayout layout, int[]... failed) {
        var pool = new FailingPool(GROUPS);
        var config = StoreConfig.of(root, "test").withReserveBytes(0);
        try (var store = BlockStore.openScratch(config, StoreListener.NONE)) {
            var moves = new ArrayList<DiskPlan.Move>();
            var saves = saves(store, pool, layout, moves::add);
            saveAll(saves, layout);
            assertThat(moves).hasSize(1);
            write(config, all(layout));
            var blocks = new ArrayList<Completion.FailedBlocks>();
            for (int group = 0; group < failed.length; group++) {
                blocks.add(new Completion.FailedBlocks(group, failed[group]));
            }
            var failure = new Failure(ErrorCode.STORAGE_IO, "scripted");
            var request = new Request();
            var order = IntStream.range(0, BLOCKS).mapToObj(request::blockHash).toList();
            var positions = new ArrayList<Integer>();
            saves.end(
                    new Completion(
                            moves.getFirst().id(),
                            Completion.ALL_RANKS,
                            new Completion.Failed(failure, blocks)),
                    (group, parent, hashes) -> {
                        int first = order.indexOf(hashes.getFirst());
                        assertThat(parent.map(order::indexOf).orElse(-1))
                                .as("the block before")
                                .isEqualTo(first - 1);
                        if (group == 0) { // the others have the same
                            hashes.forEach(hash -> positions.add(order.indexOf(hash)));
                        }
                    });
            assertThat(pool.open).isZero();
            var tracked = new Tracked(layout);
            for (int block = 0; block < BLOCKS; block++) {
                assertThat(tracked.isStored(request, block, store))
                        .as("block %d", block)
                        .isEqualTo(positions.contains(block));
            }
            return positions;
        }
    }

    @Test
    void knowsWhatASaveHasStoredThatFailedForSomeBlocks() {
        var singles = new FileLayout(GROUPS, 1, 1);
        assertThat(storedAfter(singles, new int[] {}, new int[] {1})).containsExactly(0, 2, 3);
    }

    @Test
    void knowsThatARunIsNotStoredWhenOneOfItsBlocksIsNot() {
        var runs = new FileLayout(GROUPS, 1, 2);
        assertThat(storedAfter(runs, new int[] {1})).containsExactly(2, 3);
    }

    @Test
    void takesNothingForStoredWhenASaveFailsAndNamesNoBlock() {
        assertThat(storedAfter(new FileLayout(GROUPS, 1, 1))).isEmpty();
    }

    /// Whoever waits for it removes it: a router that hears of it afterwards would look for it.
    @Test
    void tellsNobodyWhatASaveHasStoredThatADrainWaitsFor() {
        var layout = new FileLayout(GROUPS, 1, 1);
        var pool = new FailingPool(GROUPS);
        var config = StoreConfig.of(root, "test").withReserveBytes(0);
        try (var store = BlockStore.openScratch(config, StoreListener.NONE)) {
            var moves = new ArrayList<DiskPlan.Move>();
            var saves = saves(store, pool, layout, moves::add);
            saveAll(saves, layout);
            var drained = saves.drain();
            assertThat(drained).isNotDone();
            var announced = new ArrayList<BlockHash>();
            saves.end(
                    new Completion(
                            moves.getFirst().id(),
                            Completion.ALL_RANKS,
                            new Completion.Completed(1)),
                    (_, _, hashes) -> announced.addAll(hashes));
            assertThat(drained).isDone();
            assertThat(announced).isEmpty();
            assertThat(pool.open).isZero();
        }
    }

    /// What the workers write of a save.
    private static List<BlockKey> written(DiskPlan.Move move) {
        var memory =
                IntStream.range(0, GROUPS)
                        .mapToObj(group -> {
                            var bytes = new MemoryRange.Host(Arena.ofAuto().allocate(BLOCKS * 8));
                            return new KvRegion(
                                    "layer." + group, group, group, bytes, BLOCKS, 8, 8);
                        })
                        .toList();
        return JobFile.of(move, RegionMemory.of(memory, GROUPS, KvLayout.LBNHC), 0).stream()
                .map(JobFile::key)
                .toList();
    }

    private static Completion completed(DiskPlan.Move move) {
        return new Completion(move.id(), Completion.ALL_RANKS, new Completion.Completed(1));
    }

    /// Otherwise a lookup promises what no file holds.
    @Test
    void takesOnlyWhatAGroupHadInMemoryForStored() {
        int window = 2;
        var layout = new FileLayout(GROUPS, 1, 1);
        var config = StoreConfig.of(root, "test").withReserveBytes(0);
        try (var store = BlockStore.openScratch(config, StoreListener.NONE)) {
            var moves = new ArrayList<DiskPlan.Move>();
            var saves = saves(store, new FailingPool(GROUPS), layout, moves::add);
            saveAll(saves, layout, new Table(window));
            assertThat(moves).hasSize(1);
            var files = written(moves.getFirst());
            write(config, files);
            var announced = new HashMap<Integer, List<BlockHash>>();
            var parents = new HashMap<Integer, Optional<BlockHash>>();
            saves.end(
                    completed(moves.getFirst()),
                    (group, parent, hashes) -> {
                        announced.put(group, hashes);
                        parents.put(group, parent);
                    });
            var request = new Request();
            var known =
                    IntStream.range(0, BLOCKS)
                            .mapToObj(block -> layout.single(request.blockHash(block), block))
                            .flatMap(List::stream)
                            .filter(store::mayContain)
                            .toList();
            assertThat(known).isEqualTo(files);
            var all = Tracked.hashes(request, 0, BLOCKS);
            assertThat(announced).isEqualTo(Map.of(0, all, 1, all.subList(window, BLOCKS)));
            assertThat(parents)
                    .isEqualTo(Map.of(0, Optional.empty(), 1, Optional.of(all.get(window - 1))));
        }
    }

    /// Another request whose prompt begins with blocks that the engine holds without those of the
    /// group.
    @Test
    void savesABlockOnceOfWhichAGroupHasNoMemory() {
        var layout = new FileLayout(GROUPS, 1, 1);
        var config = StoreConfig.of(root, "test").withReserveBytes(0);
        try (var store = BlockStore.openScratch(config, StoreListener.NONE)) {
            var moves = new ArrayList<DiskPlan.Move>();
            var saves = saves(store, new FailingPool(GROUPS), layout, moves::add);
            saveAll(saves, layout, new Table(2));
            write(config, written(moves.getFirst()));
            saves.end(completed(moves.getFirst()), (_, _, _) -> {});
            saveAll(saves, layout, new Table(2));
            assertThat(moves).hasSize(1);
            saveAll(saves, layout, new Table(0)); // one that has computed it anew
            assertThat(moves).hasSize(2);
            assertThat(moves.getLast().hashes()).hasSize(2);
        }
    }
}
