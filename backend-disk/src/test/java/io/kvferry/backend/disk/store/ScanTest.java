// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Instant;

/// What a look at the folder costs: only subfolders whose entries changed are listed.
class ScanTest {
    @TempDir Path root;

    private BlockStore open() {
        return BlockStore.open(
                StoreDriver.config(root), StoreListener.NONE, FileCalls.ofPlatform());
    }

    @Test
    void listsOnlyTheFoldersInWhichAnotherProcessChangedSomething() throws Exception {
        try (var store = open();
                var other = open()) {
            var first = BlockKey.of("first");
            new StoreDriver(other).save(first, StoreDriver.block(1, 100));
            store.core().scan();
            assertThat(store.mayContain(first)).isTrue();
            age(store);
            store.core().scan(); // once, because of the times
            store.core().scan();
            assertThat(store.core().foldersListed()).as("nothing changed").isZero();
            assertThat(store.mayContain(first)).isTrue();

            var second = BlockKey.of("second");
            new StoreDriver(other).save(second, StoreDriver.block(2, 100));
            store.core().scan();
            assertThat(store.core().foldersListed()).as("of the second block").isEqualTo(1);
            assertThat(store.mayContain(second)).isTrue();
            assertThat(store.mayContain(first)).isTrue();

            age(store);
            store.core().scan();
            Files.delete(store.core().folder().file(first.digest()));
            store.core().scan();
            assertThat(store.core().foldersListed()).as("of the first block").isEqualTo(1);
            assertThat(store.mayContain(first)).isFalse();
            assertThat(store.mayContain(second)).isTrue();
        }
    }

    /// As if nothing had been changed for a minute: two changes within a tick of the clock could
    /// not be told apart.
    private static void age(BlockStore store) throws IOException {
        var then = FileTime.from(Instant.now().minusSeconds(60));
        for (int i = 0; i < StoreFolder.FOLDERS; i++) {
            Files.setLastModifiedTime(store.core().folder().subfolder(i), then);
        }
    }

    @Test
    void theStoresOfAProcessShareOneScanWhateverTheirThreads() {
        var config = StoreDriver.config(root);
        try (var rank = BlockStore.open(config, StoreListener.NONE);
                var otherRank = BlockStore.open(config, StoreListener.NONE);
                var scheduler =
                        BlockStore.open(
                                config.with(new StoreConfig.Pools(1, 1, 8)), StoreListener.NONE)) {
            assertThat(otherRank.core()).isSameAs(rank.core());
            assertThat(scheduler.core()).isSameAs(rank.core());
        }
    }
}
