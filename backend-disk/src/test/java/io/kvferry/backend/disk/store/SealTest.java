// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.secret.FleetSecret;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.zip.CRC32C;

/// Who can write to the folder but does not have the fleet's secret cannot feed a block.
class SealTest {
    private static final BlockKey KEY = BlockKey.of("k");

    @TempDir Path folder;

    private FleetKey key(String secret) throws Exception {
        return FleetKey.of(FleetSecret.read(Files.writeString(folder.resolve(secret), secret)));
    }

    private StoreConfig config(FleetKey key) {
        return StoreDriver.looking(StoreDriver.config(folder.resolve("root")).withKey(key));
    }

    @Test
    void loadsWhatWasSealedWithTheSameSecretOnly() throws Exception {
        var saved = StoreDriver.block(1, 5000, 70_000);
        var one = config(key("the secret of one fleet"));
        try (var store = BlockStore.open(one, StoreListener.NONE)) {
            new StoreDriver(store).save(KEY, saved);
        }
        try (var store = BlockStore.open(one, StoreListener.NONE)) {
            var loaded = StoreDriver.empty(5000, 70_000);
            assertThat(new StoreDriver(store).load(KEY, loaded)).isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(saved, loaded)).isTrue();
        }
        for (var other : new FleetKey[] {key("the secret of another"), FleetKey.NONE}) {
            try (var store = BlockStore.open(config(other), StoreListener.NONE)) {
                var result = new StoreDriver(store).load(KEY, StoreDriver.empty(5000, 70_000));
                assertThat(result.failedWith(ErrorCode.MISS)).isTrue();
            }
        }
    }

    @Test
    void refusesABlockThatWasChangedAndGotNewChecksums() throws Exception {
        var config = config(key("the secret of one fleet"));
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            var driver = new StoreDriver(store);
            driver.save(KEY, StoreDriver.block(1, 600));
            Path file = StoreDriver.file(config, KEY);
            byte[] bytes = Files.readAllBytes(file);
            bytes[4096 + 17] ^= 1;
            put(bytes, 64, crc(bytes, 4096, 600));
            int used = 112 + 8 + 1;
            var header = new CRC32C();
            header.update(bytes, 0, 68);
            header.update(bytes, 72, used - 72);
            put(bytes, 68, (int) header.getValue());
            Files.write(file, bytes);
            var result = driver.load(KEY, StoreDriver.empty(600));
            assertThat(result.failedWith(ErrorCode.CORRUPT)).as("%s", result).isTrue();
            assertThat(result.toString()).contains("key");
        }
    }

    /// The procedure of docs/security.md: processes get the new secret one after the other.
    @Test
    void replacesTheBlocksOfAnOldSecretWithinTheSameQuota() throws Exception {
        int room = 8;
        long file = 4096 + 8192;
        var before = config(key("the secret of last year")).withQuota(room * file, 1, 1);
        var after = config(key("the secret of this year")).withQuota(room * file, 1, 1);
        var prompt = new ArrayList<BlockKey>();
        for (int i = 0; i < room; i++) {
            prompt.add(BlockKey.of("b" + i, i));
        }
        try (var old = BlockStore.open(before, StoreListener.NONE, FileCalls.ofPlatform())) {
            for (var key : prompt) {
                new StoreDriver(old).save(key, StoreDriver.block(1, 5000));
            }
            try (var now = BlockStore.open(after, StoreListener.NONE, FileCalls.ofPlatform())) {
                var driver = new StoreDriver(now);
                assertThat(now.stats().usedBytes()).as("old ones count").isEqualTo(room * file);
                assertThat(driver.locate(prompt)).isZero();
                for (int i = 0; i < room; i++) {
                    var missed = driver.load(prompt.get(i), StoreDriver.empty(5000));
                    assertThat(missed.failedWith(ErrorCode.MISS)).as("%s", missed).isTrue();
                    assertThat(driver.save(prompt.get(i), StoreDriver.block(2, 5000)))
                            .isEqualTo(BlockResult.Done.STORED);
                    assertThat(StoreDriver.diskBytes(after)).isEqualTo(room * file);
                }
                assertThat(driver.locate(prompt)).isEqualTo(room);
                for (var key : prompt) {
                    var loaded = StoreDriver.empty(5000);
                    assertThat(driver.load(key, loaded)).isEqualTo(BlockResult.Done.LOADED);
                    assertThat(StoreDriver.same(StoreDriver.block(2, 5000), loaded)).isTrue();
                }
                assertThat(now.stats().corrupt()).isZero();
                assertThat(now.stats().failures()).isZero();
            }
            // A process that still has the old secret misses, and saves anew.
            var driver = new StoreDriver(old);
            assertThat(driver.locate(prompt)).isZero();
            assertThat(driver.save(prompt.getFirst(), StoreDriver.block(1, 5000)))
                    .isEqualTo(BlockResult.Done.STORED);
            var loaded = StoreDriver.empty(5000);
            assertThat(driver.load(prompt.getFirst(), loaded)).isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(StoreDriver.block(1, 5000), loaded)).isTrue();
            assertThat(old.stats().corrupt()).isZero();
        }
    }

    private static int crc(byte[] bytes, int from, int length) {
        var crc = new CRC32C();
        crc.update(bytes, from, length);
        return (int) crc.getValue();
    }

    private static void put(byte[] bytes, int at, int value) {
        for (int i = 0; i < 4; i++) {
            bytes[at + i] = (byte) (value >>> 8 * i);
        }
    }
}
