// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static io.kvferry.backend.disk.store.StoreDriver.block;
import static io.kvferry.backend.disk.store.StoreDriver.empty;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.space.SpaceCatalog;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// Folders that are deleted or become read-only while a store has them open.
class LostFolderTest {
    private static final long FILE = 8192;
    private static final BlockKey OLD = BlockKey.of("old");
    private static final BlockKey NEW = BlockKey.of("new");

    @TempDir Path folder;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());

    private StoreConfig config() {
        return StoreDriver.looking(StoreDriver.config(folder.resolve("root")));
    }

    private static void delete(Path path) throws Exception {
        try (var all = Files.walk(path)) {
            for (var each : all.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(each);
            }
        }
    }

    private static void assertWorks(BlockStore store, BlockKey key) {
        var driver = new StoreDriver(store);
        var loaded = empty(5000);
        assertThat(driver.load(key, loaded)).isEqualTo(BlockResult.Done.LOADED);
        assertThat(StoreDriver.same(block(2, 5000), loaded)).isTrue();
        assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(store.config()));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "*", "*/tmp", "*/blocks"})
    void makesAFolderAgainThatWasDeleted(String part) throws Exception {
        var config = config();
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(OLD, block(1, 5000));
            var namespace = store.core().folder().folder();
            delete(
                    part.isEmpty()
                            ? config.root()
                            : namespace.resolve(part.substring(1).replaceFirst("^/", "")));
            boolean blocksLeft = part.endsWith("tmp");
            assertThat(driver.locate(List.of(OLD))).isEqualTo(blocksLeft ? 1 : 0);
            assertThat(driver.save(NEW, block(2, 5000))).isEqualTo(BlockResult.Done.STORED);
            assertWorks(store, NEW);
            for (var each : List.of("", "blocks", "tmp", "bad")) {
                assertThat(
                                PosixFilePermissions.toString(
                                        Files.getPosixFilePermissions(namespace.resolve(each))))
                        .isEqualTo("rwx------");
            }
            // Evictions take turns with those of a process that comes later.
            try (var later = BlockStore.open(config, StoreListener.NONE, FileCalls.ofPlatform())) {
                assertWorks(later, NEW);
                assertThat(store.core().users().others()).isTrue();
            }
            assertThat(store.core().users().others()).isFalse();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"blocks", "tmp"})
    void makesSubfoldersAgainThatWereDeleted(String parent) throws Exception {
        try (var store = BlockStore.open(config(), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(OLD, block(1, 5000));
            var folders = store.core().folder();
            for (int i = 0; i < StoreFolder.FOLDERS; i++) {
                delete(parent.equals("tmp") ? folders.temps(i) : folders.subfolder(i));
            }
            assertThat(driver.locate(List.of(OLD))).isEqualTo(parent.equals("tmp") ? 1 : 0);
            assertThat(driver.save(NEW, block(2, 5000))).isEqualTo(BlockResult.Done.STORED);
            assertWorks(store, NEW);
        }
    }

    @Test
    void failsSavesWhileAFileHasTheNameOfTheRootAndGoesOnAfterwards() throws Exception {
        var config = config();
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            delete(config.root());
            Files.createFile(config.root());
            var result = driver.save(NEW, block(2, 5000));
            assertThat(result.failedWith(ErrorCode.STORAGE_IO)).as("%s", result).isTrue();
            assertThat(driver.load(NEW, empty(5000))).isInstanceOf(BlockResult.Failed.class);
            assertThat(driver.locate(List.of(NEW))).isZero();
            Files.delete(config.root());
            long end = System.nanoTime() + StoreDriver.PATIENCE.toNanos();
            while (driver.save(NEW, block(2, 5000)) != BlockResult.Done.STORED) {
                assertThat(System.nanoTime()).as("deadline").isLessThan(end);
            }
            assertWorks(store, NEW);
        }
    }

    @Test
    void readsOnInAFolderThatBecameReadOnlyAndCountsWhatItCannotDelete() {
        var config = config().withQuota(3 * FILE, 1, 1);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            var keys = List.of(BlockKey.of("a"), BlockKey.of("b"), BlockKey.of("c"));
            for (var key : keys) {
                assertThat(driver.save(key, block(2, 3000))).isEqualTo(BlockResult.Done.STORED);
            }
            calls.hook =
                    (call, _) ->
                            call.matches("create.*|openOver|publish|rename|unlink|set.*|make.*")
                                    ? -Errno.EROFS
                                    : 0;
            for (int i = 0; i < 3; i++) {
                var result = driver.save(NEW, block(2, 3000));
                assertThat(result.failedWith(ErrorCode.NO_SPACE)).as("%s", result).isTrue();
                assertThat(store.stats().blocks()).as("those that are there").isEqualTo(3);
                assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
                assertThat(store.stats().evicted()).isZero();
                for (var key : keys) {
                    assertThat(driver.load(key, empty(3000))).isEqualTo(BlockResult.Done.LOADED);
                }
            }
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(driver.save(NEW, block(2, 3000))).isEqualTo(BlockResult.Done.STORED);
            assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
        }
    }

    @Test
    void doesNotPromiseADamagedBlockThatItCannotDelete() throws Exception {
        var config = config();
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(OLD, block(2, 3000));
            Path file = StoreDriver.file(config, OLD);
            byte[] bytes = Files.readAllBytes(file);
            bytes[4100] ^= 1;
            Files.write(file, bytes);
            calls.hook = (call, _) -> call.equals("unlink") ? -Errno.EROFS : 0;
            assertThat(driver.load(OLD, empty(3000)).failedWith(ErrorCode.CORRUPT)).isTrue();
            assertIsAMissForGood(store);
            store.core().scan();
            var result = driver.save(OLD, block(3, 3000));
            assertThat(result.failedWith(ErrorCode.STORAGE_IO)).as("%s", result).isTrue();
            assertIsAMissForGood(store);
            calls.hook = FaultInjectingCalls.PASS; // the folder is writable again
            assertThat(driver.save(OLD, block(3, 3000))).isEqualTo(BlockResult.Done.STORED);
            assertThat(driver.locate(List.of(OLD))).isOne();
            var loaded = empty(3000);
            assertThat(driver.load(OLD, loaded)).isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(block(3, 3000), loaded)).isTrue();
        }
    }

    private static void assertIsAMissForGood(BlockStore store) {
        long tomorrow = System.nanoTime() + TimeUnit.DAYS.toNanos(1);
        assertThat(new StoreDriver(store).locate(List.of(OLD))).isZero();
        assertThat(store.core().catalog().presence(OLD.digest(), tomorrow))
                .isEqualTo(SpaceCatalog.Presence.SUPPRESSED);
    }

    /// Also after an eviction tried to delete it.
    @Test
    void doesNotPromiseABlockThatTheMediumCannotReadInAReadOnlyFolder() {
        var config = config().withQuota(FILE, 1, 1);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            assertThat(driver.save(OLD, block(2, 3000))).isEqualTo(BlockResult.Done.STORED);
            calls.hook =
                    (call, _) ->
                            call.matches("create.*|openOver|publish|rename|unlink|set.*|make.*")
                                    ? -Errno.EROFS
                                    : call.equals("read") ? -Errno.EIO : 0;
            assertThat(driver.load(OLD, empty(3000)).failedWith(ErrorCode.STORAGE_IO)).isTrue();
            assertIsAMissForGood(store);
            var result = driver.save(NEW, block(2, 3000));
            assertThat(result.failedWith(ErrorCode.NO_SPACE)).as("%s", result).isTrue();
            assertIsAMissForGood(store);
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(driver.load(OLD, empty(3000))).isEqualTo(BlockResult.Done.LOADED);
            assertThat(driver.locate(List.of(OLD))).as("it could be read").isOne();
        }
    }
}
