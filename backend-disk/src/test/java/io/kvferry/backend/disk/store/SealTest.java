// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.secret.FleetSecret;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.zip.CRC32C;

/// Who can write to the folder but does not have the fleet's secret cannot feed a block.
class SealTest {
    private static final BlockKey KEY = BlockKey.of("k");

    @TempDir Path folder;

    private FleetKey key(String secret) throws Exception {
        return FleetKey.of(FleetSecret.read(Files.writeString(folder.resolve(secret), secret)));
    }

    private StoreConfig config(FleetKey key) {
        return StoreDriver.config(folder.resolve("root")).withKey(key);
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
