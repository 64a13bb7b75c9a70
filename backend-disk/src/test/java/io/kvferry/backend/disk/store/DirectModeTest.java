// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.DirectProbe;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.PathText;
import io.kvferry.toolkit.disk.space.FolderUsers;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;

/// Which files bypass the page cache. A second user of the folder's lock file stands for another
/// process: the system cannot tell them apart.
class DirectModeTest {
    private static final Set<String> OPENS = Set.of("openRead", "openOver", "createNew");

    @TempDir Path root;

    private final FileCalls real = FileCalls.ofPlatform();
    private final List<Boolean> opened = new CopyOnWriteArrayList<>();

    /// The real calls, which note how each file is opened.
    private final FileCalls calls =
            (FileCalls)
                    Proxy.newProxyInstance(
                            FileCalls.class.getClassLoader(),
                            new Class<?>[] {FileCalls.class},
                            (_, method, args) -> {
                                if (OPENS.contains(method.getName())) {
                                    opened.add((Boolean) args[1]);
                                }
                                try {
                                    return method.invoke(real, args);
                                } catch (InvocationTargetException e) {
                                    throw e.getCause();
                                }
                            });

    private long seed;

    @BeforeEach
    void needsDirectIo() {
        try (Arena arena = Arena.ofConfined()) {
            assumeTrue(
                    DirectProbe.probe(real, PathText.of(arena, root.resolve("probe"))) == 0,
                    "the folder of temporary files takes no O_DIRECT");
        }
    }

    @Test
    void autoBypassesThePageCacheWhileNoOtherProcessUsesTheFolder() {
        try (var store = open(DirectIo.AUTO)) {
            assertThat(filesBypassThePageCache(store)).isTrue();
        }
    }

    @Test
    void autoUsesThePageCacheWhereAnotherProcessUsesTheFolder() {
        open(DirectIo.AUTO).close(); // makes the folder
        try (var _ = otherProcess();
                var store = open(DirectIo.AUTO)) {
            assertThat(filesBypassThePageCache(store)).isFalse();
            assertThat(store.stats().direct()).isFalse();
        }
    }

    /// Engines of one folder start one after the other.
    @Test
    void autoUsesThePageCacheFromWhenAnotherProcessComesUntilItGoes() throws Exception {
        try (var store = open(DirectIo.AUTO)) {
            assertThat(filesBypassThePageCache(store)).isTrue();
            try (var _ = otherProcess()) {
                awaitFilesThatBypassThePageCache(false, store);
            }
            awaitFilesThatBypassThePageCache(true, store);
        }
    }

    @Test
    void onBypassesThePageCacheWhoeverUsesTheFolder() {
        open(DirectIo.AUTO).close();
        try (var _ = otherProcess();
                var store = open(DirectIo.ON)) {
            assertThat(filesBypassThePageCache(store)).isTrue();
        }
    }

    private BlockStore open(DirectIo direct) {
        return BlockStore.open(
                StoreDriver.config(root).withMedium(Durability.NONE, direct),
                StoreListener.NONE,
                calls);
    }

    private FolderUsers otherProcess() {
        var folder = StoreFolder.open(StoreDriver.config(root), real);
        return new FolderUsers(real, folder.usersFile());
    }

    /// Saves and loads a block.
    private boolean filesBypassThePageCache(BlockStore store) {
        var key = BlockKey.of("block " + ++seed);
        List<MemorySegment> block = StoreDriver.block(seed, 10_000);
        var driver = new StoreDriver(store);
        opened.clear();
        assertThat(driver.save(key, block)).isEqualTo(BlockResult.Done.STORED);
        var target = StoreDriver.empty(10_000);
        assertThat(driver.load(key, target)).isEqualTo(BlockResult.Done.LOADED);
        assertThat(target.getFirst().mismatch(block.getFirst())).isEqualTo(-1);
        assertThat(opened).hasSizeGreaterThanOrEqualTo(2);
        return opened.getLast();
    }

    private void awaitFilesThatBypassThePageCache(boolean expected, BlockStore store)
            throws InterruptedException {
        var patience = Deadline.in(StoreDriver.PATIENCE);
        while (filesBypassThePageCache(store) != expected && !patience.passed()) {
            Thread.sleep(20);
        }
        assertThat(filesBypassThePageCache(store)).isEqualTo(expected);
        assertThat(opened).doesNotContain(!expected);
    }
}
