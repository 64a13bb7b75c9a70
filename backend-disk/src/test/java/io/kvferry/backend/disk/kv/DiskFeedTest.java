// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.backend.disk.store.StoreListener;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.memory.FullHeap;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/// Jobs that wait for room in the store, some of whose files the store rejects permanently: files
/// of group 1 are larger than it accepts.
class DiskFeedTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final int SMALL = 64;
    private static final int LARGE = 4096;

    @TempDir Path root;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());
    private final DiskWorker.Feed feed = new DiskWorker.Feed();
    private final List<RegionMemory> memory =
            RegionMemory.of(List.of(region(0, SMALL), region(1, LARGE)), 2, KvLayout.LBNHC);

    private static KvRegion region(int group, int bytes) {
        var range = new MemoryRange.Host(Arena.ofAuto().allocate(bytes, Long.BYTES));
        return new KvRegion("layer" + group, group, group, range, 1, bytes, bytes);
    }

    private BlockStore open() {
        var config = StoreConfig.of(root, "feed").withReserveBytes(0);
        return BlockStore.open(
                new StoreConfig(
                        config.root(),
                        config.namespace(),
                        config.checkFolder(),
                        config.key(),
                        config.space(),
                        config.durability(),
                        config.directIo(),
                        new StoreConfig.Pools(1, 1, 1),
                        LARGE - 1,
                        new StoreConfig.Times(
                                PATIENCE,
                                Duration.ofSeconds(2),
                                Duration.ofMinutes(15),
                                Duration.ofHours(1),
                                Duration.ofMinutes(1))),
                StoreListener.NONE,
                calls);
    }

    /// A save of so many blocks.
    ///
    /// @param large whether they have files in group 1 too
    private DiskJob save(BlockStore store, int number, int blocks, boolean large) {
        return job(store, number, blocks, large, TransferId.Direction.SAVE);
    }

    private DiskJob job(
            BlockStore store,
            int number,
            int blocks,
            boolean large,
            TransferId.Direction direction) {
        var hashes = new ArrayList<BlockHash>();
        for (int i = 0; i < blocks; i++) {
            var bytes = new byte[BlockHash.BYTES];
            bytes[0] = (byte) number;
            bytes[1] = (byte) i;
            bytes[2] = (byte) (i >> 8);
            hashes.add(BlockHash.of(bytes, 0));
        }
        var id = new TransferId("r" + number, 0, direction, "");
        var ids = new int[2][blocks];
        Arrays.fill(ids[1], large ? 0 : BlockTable.NO_BLOCK);
        var move = new DiskPlan.Move(id, false, 0, hashes, ids, 1, List.of());
        boolean load = direction == TransferId.Direction.LOAD;
        return new DiskJob(move, load, memory, store, 0, Deadline.in(PATIENCE), feed, () -> {});
    }

    @Test
    void everyJobEndsAlthoughTheStoreRefusesAFileOfTheOneBefore() throws Exception {
        var hang = new CountDownLatch(1);
        try (var store = open()) {
            holdWrites(new CountDownLatch(1), hang);
            var jobs = new ArrayList<DiskJob>();
            jobs.add(save(store, 0, 2, false)); // one in service, one in the queue
            jobs.add(save(store, 1, 1, true));
            jobs.add(save(store, 2, 3, false));
            jobs.add(save(store, 3, 3, false));
            jobs.forEach(feed::add);
            hang.countDown();
            for (DiskJob job : jobs) {
                assertThat(job.awaitEnd(Deadline.in(PATIENCE))).as("%s", job.id()).isTrue();
            }
            assertThat(jobs.get(0).result()).isInstanceOf(Completion.Completed.class);
            assertThat(jobs.get(1).result()).isInstanceOf(Completion.Failed.class);
            assertThat(jobs.get(2).result()).isInstanceOf(Completion.Completed.class);
            assertThat(jobs.get(3).result()).isInstanceOf(Completion.Completed.class);
        }
    }

    /// However many files are rejected in a row: the job must not recurse for each.
    @Test
    void aJobEndsWhoseFilesAreAllRefused() {
        try (var store = open()) {
            var job = save(store, 4, 20_000, true);
            job.files().removeIf(file -> file.group() == 0);
            feed.add(job);
            assertThat(job.ended()).isTrue();
            assertThat(job.result()).isInstanceOf(Completion.Failed.class);
        }
    }

    /// Although some of them are known to have failed: the others were not handed on.
    @Test
    void aJobThatCouldNotBeHandedOnFailsForAllItsBlocks() {
        var hang = new CountDownLatch(1);
        try (var store = open()) {
            holdWrites(new CountDownLatch(1), hang);
            var job = save(store, 5, 20, true);
            assertThat(job.feed()).as("the store takes all of it").isFalse();
            job.failStart();
            assertThat(job.ended()).as("a file is being written").isFalse();
            hang.countDown();
            assertThat(job.awaitEnd(Deadline.in(PATIENCE))).isTrue();
            assertThat(job.result())
                    .isInstanceOfSatisfying(
                            Completion.Failed.class,
                            failed -> assertThat(failed.blocks()).isEmpty());
        }
    }

    /// Else the scheduler half would look for all of them again, and promise what fails once more.
    @Test
    void aLoadFailsForWhatCannotBeReadRatherThanForWhatIsGone() {
        try (var store = open()) {
            var saved = save(store, 6, 3, false);
            feed.add(saved);
            assertThat(saved.awaitEnd(Deadline.in(PATIENCE))).isTrue();
            var opened = new AtomicInteger();
            calls.hook =
                    (call, _) ->
                            call.equals("openRead")
                                    ? opened.incrementAndGet() == 2 ? -Errno.EIO : -Errno.ENOENT
                                    : 0;
            var load = job(store, 6, 3, false, TransferId.Direction.LOAD);
            feed.add(load);
            assertThat(load.awaitEnd(Deadline.in(PATIENCE))).isTrue();
            var failed = (Completion.Failed) load.result();
            assertThat(failed.failure().code()).isEqualTo(ErrorCode.STORAGE_IO);
            assertThat(failed.blocks().getFirst().positions()).containsExactly(0, 1, 2);
        }
    }

    /// If it counted as complete, the engine would compute on blocks that were never filled.
    @Test
    void aJobFailsWhicheverAllocationFailsWhenAFileHasFailed() throws Exception {
        int failures = FullHeap.runSweep(root, 16, Child.class, root + "", "112");
        assertThat(failures).as("jobs with too little memory").isPositive();
    }

    @Tag("soak")
    @Test
    void aJobFailsWhicheverAllocationFailsInSmallSteps() throws Exception {
        int failures = FullHeap.runSweep(root, 16, Child.class, root + "", "16");
        assertThat(failures).as("jobs with too little memory").isPositive();
    }

    /// The end of a file as the store tells it. The number of the file is above 64.
    static final class Child implements FullHeap.Trial {
        private static final int BLOCKS = 70;
        private static final BlockResult FAILED =
                BlockResult.Failed.of(ErrorCode.STORAGE_IO, "a test");

        private final DiskFeedTest test = new DiskFeedTest();
        private final BlockStore store;
        private int number;
        private @Nullable DiskJob job;

        private Child(Path root) {
            test.root = root;
            store = test.open();
        }

        public static void main(String[] args) {
            FullHeap.sweepAndExit(Integer.parseInt(args[1]), 64 << 10, new Child(Path.of(args[0])));
        }

        @Override
        public void prepare() {
            job = test.save(store, number++, BLOCKS, false);
        }

        @Override
        public boolean work() {
            DiskJob saved = Objects.requireNonNull(job);
            saved.completed(BLOCKS - 1, FAILED);
            return saved.result() instanceof Completion.Failed;
        }

        @Override
        public void check(int left) {
            assertThat(Objects.requireNonNull(job).result())
                    .as("%d bytes left", left)
                    .isInstanceOfSatisfying(
                            Completion.Failed.class,
                            failed ->
                                    assertThat(failed.blocks().getFirst().positions())
                                            .containsExactly(BLOCKS - 1));
        }
    }

    /// Wherever that falls into the handing on of a file that the store refuses.
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aJobThatIsGivenUpWhileItIsFedHandsOnNothingMore(boolean aborted) throws Exception {
        var hang = new CountDownLatch(1);
        try (var store = open()) {
            var held = new CountDownLatch(1);
            holdWrites(held, hang);
            var before = save(store, 0, 20, false);
            feed.add(before);
            await(held);
            feed.run(); // one in service, one in the queue
            for (int i = 0; i < 200; i++) {
                var job = save(store, 1, 3, false);
                var over = new AtomicBoolean();
                var feeder =
                        Thread.ofPlatform()
                                .start(() -> {
                                    while (!over.get()) {
                                        job.feed();
                                    }
                                });
                for (int spin = 0; spin < 50 * i; spin++) {
                    Thread.onSpinWait();
                }
                if (aborted) {
                    job.abort(new Failure(ErrorCode.CLOSED, "a test"));
                } else {
                    job.failStart();
                }
                over.set(true);
                feeder.join();
                assertThat(job.ended()).isTrue();
                var failed = (Completion.Failed) job.result();
                var positions =
                        failed.blocks().stream()
                                .flatMapToInt(group -> Arrays.stream(group.positions()));
                assertThat(positions).hasSize(aborted ? 3 : 0); // without any: all
            }
            hang.countDown();
            assertThat(before.awaitEnd(Deadline.in(PATIENCE))).isTrue();
        }
    }

    /// @param held counted down when the first is held
    private void holdWrites(CountDownLatch held, CountDownLatch until) {
        calls.hook =
                (call, _) -> {
                    if (call.equals("createNew")) {
                        held.countDown();
                        await(until);
                    }
                    return 0;
                };
    }

    private static void await(CountDownLatch latch) {
        try {
            assertThat(latch.await(60, TimeUnit.SECONDS)).isTrue();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
