// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.block.FleetKey;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.secret.FleetSecret;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.zip.CRC32C;

/// A process that can write to the folder but lacks the fleet's secret cannot create a loadable
/// block.
class SealTest {
    private static final BlockKey KEY = BlockKey.of("k");

    /// Bytes of the header of a block under that key.
    private static final int USED = 112 + 1;

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

    /// Each byte of the header that is in use, and one of the payload.
    @Test
    void refusesABlockThatWasChangedAndGotNewChecksums() throws Exception {
        var config = config(key("the secret of one fleet"));
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            var driver = new StoreDriver(store);
            for (int at = 0; at <= USED; at++) {
                driver.save(KEY, StoreDriver.block(1, 400, 200));
                Path file = StoreDriver.file(config, KEY);
                byte[] bytes = Files.readAllBytes(file);
                bytes[at == USED ? 4096 + 17 : at] ^= 1;
                Files.write(file, withChecksums(bytes));
                var result = driver.load(KEY, StoreDriver.empty(400, 200));
                boolean sealedOver = at < 64 || at >= 72; // the rest is the checksums
                assertThat(result instanceof BlockResult.Failed)
                        .as("%s of a block whose byte %s was changed", result, at)
                        .isEqualTo(sealedOver);
            }
            driver.save(KEY, StoreDriver.block(1, 400, 200));
            assertThat(driver.load(KEY, StoreDriver.empty(400, 200)))
                    .as("of one that nobody changed")
                    .isEqualTo(BlockResult.Done.LOADED);
        }
    }

    @Test
    void refusesABlockUnderAnotherKey() throws Exception {
        var config = config(key("the secret of one fleet"));
        var other = BlockKey.of("l");
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            var driver = new StoreDriver(store);
            driver.save(KEY, StoreDriver.block(1, 400, 200));
            byte[] bytes = Files.readAllBytes(StoreDriver.file(config, KEY));
            bytes[USED - 1] = 'l';
            Files.write(StoreDriver.file(config, other), withChecksums(bytes));
            assertNotSealed(driver.load(other, StoreDriver.empty(400, 200)));
        }
    }

    @Test
    void refusesABlockOfAnotherNamespace() throws Exception {
        var key = key("the secret of one fleet");
        var one = StoreConfig.of(folder.resolve("root"), "one").withReserveBytes(0).withKey(key);
        var two = StoreConfig.of(folder.resolve("root"), "two").withReserveBytes(0).withKey(key);
        try (var from = BlockStore.open(one, StoreListener.NONE);
                var to = BlockStore.open(two, StoreListener.NONE)) {
            new StoreDriver(from).save(KEY, StoreDriver.block(1, 400, 200));
            var driver = new StoreDriver(to);
            driver.save(KEY, StoreDriver.block(2, 400, 200));
            byte[] bytes = Files.readAllBytes(StoreDriver.file(one, KEY));
            byte[] namespace = Files.readAllBytes(StoreDriver.file(two, KEY));
            System.arraycopy(namespace, 16, bytes, 16, 32);
            Files.write(StoreDriver.file(two, KEY), withChecksums(bytes));
            assertNotSealed(driver.load(KEY, StoreDriver.empty(400, 200)));
        }
    }

    private static void assertNotSealed(BlockResult result) {
        assertThat(result.failedWith(ErrorCode.CORRUPT)).as("%s", result).isTrue();
        assertThat(result.toString()).contains("has the key");
    }

    /// Of the block file of [#KEY], or another of one letter, with 600 bytes.
    private static byte[] withChecksums(byte[] bytes) {
        put(bytes, 64, crc(bytes, 4096, 600));
        var header = new CRC32C();
        header.update(bytes, 0, 68);
        header.update(bytes, 72, USED - 72);
        put(bytes, 68, (int) header.getValue());
        return bytes;
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
