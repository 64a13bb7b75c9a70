// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.List;

/// D3 and D4 of the disk specification: every byte and every length of a block file.
class DamageTest {
    private static final long PAYLOAD = 600;
    private static final BlockKey KEY = BlockKey.of("a key that is in the header");

    @TempDir Path root;

    @Test
    void detectsEveryFlippedByteButThoseOfThePadding() throws Exception {
        var config = StoreDriver.config(root);
        long used = 112 + KEY.toString().length();
        List<MemorySegment> saved = StoreDriver.block(7, PAYLOAD);
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            var driver = new StoreDriver(store);
            driver.save(KEY, saved);
            Path file = StoreDriver.file(config, KEY);
            byte[] good = Files.readAllBytes(file);
            assertThat(good).hasSize(8192);
            long corrupt = 0;
            for (int at = 0; at < good.length; at++) {
                boolean covered = at < used || (at >= 4096 && at < 4096 + PAYLOAD);
                if (!covered && at % 13 != 0) {
                    continue; // some of the padding is enough
                }
                byte[] bad = good.clone();
                bad[at] ^= (byte) (1 << at % 8);
                Files.write(file, bad);
                List<MemorySegment> target = StoreDriver.empty(PAYLOAD);
                BlockResult result = driver.load(KEY, target);
                if (covered) {
                    assertThat(result.failedWith(ErrorCode.CORRUPT))
                            .as("byte %d: %s", at, result)
                            .isTrue();
                    assertThat(file).doesNotExist();
                    assertThat(target.getFirst().mismatch(StoreDriver.empty(PAYLOAD).getFirst()))
                            .isEqualTo(-1);
                    assertThat(driver.locate(List.of(KEY))).isZero();
                    corrupt++;
                } else {
                    assertThat(result).as("padding byte %d", at).isEqualTo(BlockResult.Done.LOADED);
                    assertThat(StoreDriver.same(saved, target)).isTrue();
                }
            }
            assertThat(store.stats().corrupt()).isEqualTo(corrupt);
            // The damaged block is replaced by the next save.
            Files.deleteIfExists(file);
            driver.locate(List.of(KEY));
            store.core().catalog().invalidate(KEY.digest());
            assertThat(driver.save(KEY, saved)).isEqualTo(BlockResult.Done.STORED);
            assertThat(driver.load(KEY, StoreDriver.empty(PAYLOAD)))
                    .isEqualTo(BlockResult.Done.LOADED);
        }
    }

    @Test
    void missesAFileCutAtAnyLength() throws Exception {
        for (DirectIo direct : DirectIo.values()) {
            var config =
                    StoreDriver.config(root.resolve(direct.name()))
                            .withMedium(Durability.NONE, DirectIo.OFF);
            try (var store = BlockStore.open(config, StoreListener.NONE)) {
                var driver = new StoreDriver(store);
                driver.save(KEY, StoreDriver.block(7, PAYLOAD));
                Path file = StoreDriver.file(config, KEY);
                byte[] good = Files.readAllBytes(file);
                for (int length = 0;
                        length < good.length;
                        length += direct == DirectIo.OFF ? 1 : 97) {
                    Files.write(file, java.util.Arrays.copyOf(good, length));
                    assertThat(
                                    driver.load(KEY, StoreDriver.empty(PAYLOAD))
                                            .failedWith(ErrorCode.CORRUPT))
                            .as("cut at %d", length)
                            .isTrue();
                    assertThat(file).doesNotExist();
                }
            }
        }
    }

    @Test
    void refusesTheFileOfAnotherKeyUnderThisName() throws Exception {
        var config = StoreDriver.config(root);
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            var driver = new StoreDriver(store);
            BlockKey other = BlockKey.of("another key, same length..");
            driver.save(other, StoreDriver.block(1, PAYLOAD));
            driver.save(KEY, StoreDriver.block(7, PAYLOAD));
            Files.copy(
                    StoreDriver.file(config, other),
                    StoreDriver.file(config, KEY),
                    java.nio.file.StandardCopyOption.REPLACE_EXISTING);
            assertThat(driver.load(KEY, StoreDriver.empty(PAYLOAD)).failedWith(ErrorCode.CORRUPT))
                    .isTrue();
        }
    }

    /// Such as one that a backup program made.
    @Test
    void opensAlthoughAFolderLiesAmongItsUnfinishedFiles() throws Exception {
        var config = StoreDriver.config(root);
        BlockStore.open(config, StoreListener.NONE).close();
        var temps = StoreFolder.open(config, FileCalls.ofPlatform()).temps(0);
        var foreign = Files.createDirectories(temps.resolve("foreign").resolve("inner"));
        Files.setLastModifiedTime(foreign.getParent(), FileTime.fromMillis(0));
        BlockStore.open(config, StoreListener.NONE).close();
        assertThat(foreign).isDirectory();
    }

    @Test
    void startsOverAFolderOfRubbish() throws Exception {
        var config = StoreDriver.config(root);
        Path file = StoreDriver.file(config, KEY);
        Files.createDirectories(file.getParent());
        Files.write(file, new byte[5]);
        Files.writeString(file.resolveSibling("notes.txt"), "not ours");
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            assertThat(store.stats().blocks()).isZero();
            assertThat(file).doesNotExist();
            assertThat(file.resolveSibling("notes.txt")).exists();
            assertThat(new StoreDriver(store).save(KEY, StoreDriver.block(7, PAYLOAD)))
                    .isEqualTo(BlockResult.Done.STORED);
        }
    }
}
