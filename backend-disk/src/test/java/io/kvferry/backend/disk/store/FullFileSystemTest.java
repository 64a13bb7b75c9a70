// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.BlockFiles;
import io.kvferry.backend.disk.SmallFileSystem;
import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;

/// D5 on a file system that is really full, below the quota of the store.
class FullFileSystemTest {
    /// A few times what fits.
    private static final int KEYS = 400;

    private static final int PAYLOAD = 20_000;
    private static final int PROCESSES = 3;

    /// One that shows no room when it is full, and one that has no inodes left and shows room.
    private static final String NO_ROOM = "size=2m";

    private static final String NO_INODES = "size=64m,nr_inodes=160";

    @TempDir Path root;

    private StoreConfig config(long reserve) {
        return StoreDriver.config(root)
                .withReserveBytes(reserve)
                .with(
                        new StoreConfig.Times(
                                StoreDriver.PATIENCE,
                                Duration.ofSeconds(2),
                                Duration.ZERO,
                                Duration.ofHours(1),
                                Duration.ofMinutes(1)));
    }

    @Test
    void failsSavesAndGoesOnReadingWhenTheFileSystemIsFull() throws Exception {
        try (var _ = SmallFileSystem.mount(root, "size=4m")) {
            var config = config(0);
            try (var store = BlockStore.open(config, StoreListener.NONE)) {
                fill(store, config);
            }
        }
    }

    private static void fill(BlockStore store, StoreConfig config) {
        var driver = new StoreDriver(store);
        int saved = 0;
        BlockResult result = driver.save(BlockKey.of("k0"), StoreDriver.block(0, 300_000));
        while (result == BlockResult.Done.STORED) {
            saved++;
            result = driver.save(BlockKey.of("k" + saved), StoreDriver.block(saved, 300_000));
        }
        assertThat(result.failedWith(ErrorCode.NO_SPACE)).as("%s", result).isTrue();
        assertThat(saved).isBetween(10, 13);
        assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
        assertThat(StoreDriver.temps(config)).isEmpty();
        for (int i = 0; i < saved; i++) {
            var target = StoreDriver.empty(300_000);
            assertThat(driver.load(BlockKey.of("k" + i), target))
                    .isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(StoreDriver.block(i, 300_000), target)).isTrue();
        }
    }

    /// By replacing the blocks used longest ago, one for each that is saved.
    @ParameterizedTest
    @ValueSource(strings = {NO_ROOM, NO_INODES})
    void savesOnWhereDeletingABlockMakesRoom(String limits) throws Exception {
        try (var _ = SmallFileSystem.mount(root, limits)) {
            var config = config(1);
            try (var store = BlockStore.open(config, StoreListener.NONE)) {
                for (int i = 0; i < KEYS; i++) {
                    assertThat(save(store, i)).isEqualTo(BlockResult.Done.STORED);
                }
                long left = store.stats().blocks();
                assertThat(left).isBetween(10L, KEYS - 10L);
                assertThat(store.stats().evicted()).isEqualTo(KEYS - left);
                for (int i = KEYS - (int) left; i < KEYS; i++) {
                    assertThat(load(store, i)).isEqualTo(BlockResult.Done.LOADED);
                }
                assertThat(StoreDriver.temps(config)).isEmpty();
            }
        }
    }

    /// The write fails, and the file system, which had shown room, shows none any more.
    @Test
    void replacesOneBlockWhenAnotherProgramTakesTheRoomMeanwhile() throws Exception {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        try (var disk = SmallFileSystem.mount(root, NO_ROOM);
                var store = BlockStore.open(config(1), StoreListener.NONE, calls)) {
            int blocks = 8;
            for (int i = 0; i < blocks; i++) {
                assertThat(save(store, i)).isEqualTo(BlockResult.Done.STORED);
            }
            // the first eviction writes to the lock file, which takes room once
            assertThat(
                            store.core()
                                    .evictor()
                                    .free(1, System.nanoTime() + StoreDriver.PATIENCE.toNanos()))
                    .isTrue();
            var other = root.resolve("of another program");
            calls.hook =
                    (call, _) -> {
                        if (call.equals("write") && !Files.exists(other)) {
                            fill(disk, other);
                        }
                        return 0;
                    };
            assertThat(save(store, blocks)).isEqualTo(BlockResult.Done.STORED);
            assertThat(other).exists();
            assertThat(store.stats().evicted()).isEqualTo(2);
            assertThat(load(store, 1).failedWith(ErrorCode.MISS)).isTrue();
            for (int i = 2; i <= blocks; i++) {
                assertThat(load(store, i)).isEqualTo(BlockResult.Done.LOADED);
            }
        }
    }

    /// The deletion for a save helps somebody else; that for its next try helps.
    @Test
    void deletesOnceMoreWhenAnotherProcessTakesTheInodeThatADeletionFreed() throws Exception {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        try (var _ = SmallFileSystem.mount(root, NO_INODES);
                var store = BlockStore.open(config(1), StoreListener.NONE, calls)) {
            int blocks = fillWithBlocks(store);
            long evicted = store.stats().evicted();
            var other = root.resolve("of another program");
            var creations = new AtomicInteger();
            calls.hook =
                    (call, _) -> {
                        if (call.equals("createNew") && creations.incrementAndGet() == 2) {
                            assertThat(make(other)).isTrue();
                        }
                        return 0;
                    };
            assertThat(save(store, blocks)).isEqualTo(BlockResult.Done.STORED);
            assertThat(creations).hasValue(3);
            assertThat(store.stats().evicted()).isEqualTo(evicted + 2);
        }
    }

    /// Saves until each save takes the place of another one.
    private static int fillWithBlocks(BlockStore store) {
        int blocks = 0;
        while (store.stats().evicted() < 3) {
            assertThat(save(store, blocks)).isEqualTo(BlockResult.Done.STORED);
            blocks++;
        }
        return blocks;
    }

    private static boolean make(Path file) {
        try {
            return file.toFile().createNewFile();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {NO_ROOM, NO_INODES})
    void goesOnWhenItIsOpenedOnAFullFileSystem(String limits) throws Exception {
        try (var _ = SmallFileSystem.mount(root, limits)) {
            var config = config(1);
            int blocks;
            try (var store = BlockStore.open(config, StoreListener.NONE)) {
                blocks = fillWithBlocks(store);
            }
            try (var store = BlockStore.open(config, StoreListener.NONE)) {
                assertThat(load(store, blocks - 1)).isEqualTo(BlockResult.Done.LOADED);
                assertThat(save(store, blocks)).isEqualTo(BlockResult.Done.STORED);
                assertThat(load(store, blocks)).isEqualTo(BlockResult.Done.LOADED);
            }
        }
    }

    private static void fill(SmallFileSystem disk, Path file) {
        try {
            disk.fill(file);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static BlockResult save(BlockStore store, int i) {
        return new StoreDriver(store).save(key(i), StoreDriver.block(i, PAYLOAD));
    }

    /// Checks every byte of what it gets.
    private static BlockResult load(BlockStore store, int i) {
        var target = StoreDriver.empty(PAYLOAD);
        var result = new StoreDriver(store).load(key(i), target);
        if (result == BlockResult.Done.LOADED) {
            assertThat(StoreDriver.same(StoreDriver.block(i, PAYLOAD), target)).isTrue();
        }
        return result;
    }

    private static BlockKey key(int i) {
        return BlockKey.of("k" + i);
    }

    @ParameterizedTest
    @ValueSource(strings = {NO_ROOM, NO_INODES})
    @Timeout(600)
    void everyByteIsRightWhenAllWriteAtOnce(String limits) throws Exception {
        writeAtOnce(limits, System.nanoTime(), 300);
    }

    @ParameterizedTest
    @ValueSource(strings = {NO_ROOM, NO_INODES})
    @Tag("soak")
    @Timeout(3600)
    void everyByteIsRightForLong(String limits) throws Exception {
        for (int i = 0; i < Integer.getInteger("kvferry.soak.seeds", 50); i++) {
            writeAtOnce(limits, System.nanoTime(), 1500);
        }
    }

    /// Several processes save and load, and another program takes what room there is and gives it
    /// back. A save may fail for want of room, and deletes no more than it needs, twice.
    private void writeAtOnce(String limits, long seed, int steps) throws Exception {
        try (var disk = SmallFileSystem.mount(root, limits)) {
            var config = config(1);
            var stores = new ArrayList<BlockStore>();
            try (var pool = Executors.newFixedThreadPool(PROCESSES + 1)) {
                for (int i = 0; i < PROCESSES; i++) { // with nothing in common
                    stores.add(BlockStore.open(config, StoreListener.NONE, FileCalls.ofPlatform()));
                }
                var work = new ArrayList<Callable<Integer>>();
                for (var store : stores) {
                    var random = new SplittableRandom(seed + work.size());
                    work.add(() -> saveAndLoad(store, random, steps));
                }
                work.add(() -> fillAndDelete(disk, steps / 10));
                int saves = 0;
                for (var end : pool.invokeAll(work)) {
                    saves += end.get();
                }
                checkAtRest(stores, saves);
            } catch (AssertionError | Exception e) {
                throw new AssertionError("seed " + seed, e);
            } finally {
                stores.forEach(BlockStore::close);
            }
        }
    }

    /// @return how many blocks it tried to save
    private static int saveAndLoad(BlockStore store, SplittableRandom random, int steps) {
        int saves = 0;
        for (int step = 0; step < steps; step++) {
            int i = random.nextInt(KEYS);
            boolean saving = random.nextBoolean();
            saves += saving ? 1 : 0;
            var result = saving ? save(store, i) : load(store, i);
            assertThat(
                            result instanceof BlockResult.Done
                                    || result.failedWith(
                                            saving ? ErrorCode.NO_SPACE : ErrorCode.MISS))
                    .as("block %d: %s", i, result)
                    .isTrue();
        }
        return saves;
    }

    private int fillAndDelete(SmallFileSystem disk, int times) throws Exception {
        var file = root.resolve("of another program");
        for (int i = 0; i < times; i++) {
            try {
                disk.fill(file);
            } catch (IOException _) {
                // without an inode it has to do without the file, too
            }
            Thread.sleep(2);
            Files.deleteIfExists(file);
            Thread.sleep(2);
        }
        return 0;
    }

    private void checkAtRest(List<BlockStore> stores, int saves) {
        var config = stores.getFirst().config();
        assertThat(StoreDriver.temps(config)).isEmpty();
        long evicted = 0;
        for (var store : stores) {
            store.core().scan();
            assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
            StoreDriver.assertReservesNothing(store);
            evicted += store.stats().evicted();
        }
        assertThat(evicted).isBetween(1L, 2L * saves);
        var files = BlockFiles.under(root);
        assertThat(files).as("blocks that are left").isNotEmpty();
        for (var file : files.subList(0, Math.min(PROCESSES, files.size()))) {
            assertThat(file.toFile().delete()).isTrue();
        }
        for (int i = 0; i < PROCESSES; i++) { // each saves again as soon as there is room
            var result = save(stores.get(i), KEYS + i);
            assertThat(result).isEqualTo(BlockResult.Done.STORED);
        }
    }
}
