// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// D5 on a file system that is really full.
class FullFileSystemTest {
    @TempDir Path root;

    @Test
    void failsSavesAndGoesOnReadingWhenTheFileSystemIsFull() throws Exception {
        boolean mounted =
                run(
                        "mount",
                        "-t",
                        "tmpfs",
                        "-o",
                        "size=4m,mode=700",
                        "kvferry-test",
                        root.toString());
        Assumptions.assumeTrue(
                mounted,
                "mounting a 4 MiB tmpfs was refused; run as root with CAP_SYS_ADMIN to include this");
        try {
            var config =
                    StoreDriver.config(root)
                            .with(
                                    new StoreConfig.Times(
                                            StoreDriver.PATIENCE,
                                            Duration.ofSeconds(2),
                                            Duration.ZERO,
                                            Duration.ofHours(1),
                                            Duration.ofMinutes(1)));
            try (var store = BlockStore.open(config, StoreListener.NONE)) {
                fill(store, config);
            }
        } finally {
            assertThat(run("umount", root.toString())).isTrue();
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

    private static boolean run(String... command) throws Exception {
        try {
            Process process =
                    new ProcessBuilder(List.of(command)).redirectErrorStream(true).start();
            return process.waitFor(20, TimeUnit.SECONDS) && process.exitValue() == 0;
        } catch (java.io.IOException _) {
            return false; // no such command here
        }
    }
}
