// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.DirectProbe;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.PathText;
import io.kvferry.toolkit.disk.space.FolderUsers;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;

/// Which files bypass the page cache. A second user of the folder's lock file stands for another
/// process: the system cannot tell them apart.
class DirectModeTest {
    private static final Set<String> OPENS = Set.of("openRead", "openOver", "createNew");

    @TempDir Path root;

    private final FileCalls real = FileCalls.ofPlatform();
    private volatile boolean full;
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
                                if (full && method.getName().equals("write")) {
                                    return (long) -Errno.ENOSPC;
                                }
                                try {
                                    return method.invoke(real, args);
                                } catch (InvocationTargetException e) {
                                    throw e.getCause();
                                }
                            });

    /// Of a file that is large enough to get its room at once.
    private static final long LARGE = 256 << 10;

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

    @ParameterizedTest
    @EnumSource(names = {"ON", "AUTO"})
    void bypassesThePageCacheWhereTheDiskWasFullWhenTheStoreOpened(DirectIo mode) {
        full = true;
        try (var store = open(mode)) {
            full = false;
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

    /// What cannot take room for a whole file at once may still take its bytes.
    @ParameterizedTest
    @CsvSource({
        Errno.ENOSPC + ", ON",
        Errno.ENOSPC + ", OFF",
        Errno.ENOSYS + ", ON",
        Errno.ENOSYS + ", OFF",
        Errno.EINTR + ", OFF",
        Errno.EIO + ", ON"
    })
    void savesWhereNoRoomIsTakenAtOnce(int errno, DirectIo mode) {
        var calls = new FaultInjectingCalls(real);
        var refusals = new AtomicInteger();
        calls.hook = (call, _) -> call.equals("allocate") ? -refuse(refusals, errno) : 0;
        try (var store = BlockStore.open(always(mode), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            var key = BlockKey.of("large");
            assertThat(driver.save(key, StoreDriver.block(1, LARGE)))
                    .isEqualTo(BlockResult.Done.STORED);
            assertThat(refusals).hasValue(1);
            var loaded = StoreDriver.empty(LARGE);
            assertThat(driver.load(key, loaded)).isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(StoreDriver.block(1, LARGE), loaded)).isTrue();
            assertThat(driver.save(BlockKey.of("small"), StoreDriver.block(2, 5000)))
                    .isEqualTo(BlockResult.Done.STORED);
            assertThat(refusals).as("a small file is not asked for").hasValue(1);
        }
    }

    private static int refuse(AtomicInteger refusals, int errno) {
        refusals.incrementAndGet();
        return errno;
    }

    /// If it is written directly, it has its whole length then, of zeros.
    @ParameterizedTest
    @EnumSource(names = {"ON", "OFF"})
    void leavesNothingOfAFileThatHasRoomAndIsNotWritten(DirectIo mode) {
        var calls = new FaultInjectingCalls(real);
        var config = always(mode);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            var key = BlockKey.of("large");
            calls.hook = (call, _) -> call.equals("write") ? -Errno.ENOSPC : 0;
            assertThat(driver.save(key, StoreDriver.block(1, LARGE)).failedWith(ErrorCode.NO_SPACE))
                    .isTrue();
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(calls.log).contains("allocate");
            assertThat(StoreDriver.temps(config)).isEmpty();
            assertThat(store.stats().usedBytes()).isZero();
            assertThat(driver.locate(List.of(key))).isZero();
            assertThat(driver.save(key, StoreDriver.block(1, LARGE)))
                    .isEqualTo(BlockResult.Done.STORED);
            assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
        }
    }

    /// So a power cut leaves fewer files that look complete: a scan deletes those without a length.
    @Test
    void aFileOfThePageCacheHasItsRoomAndNoLengthBeforeItIsWritten() {
        assumeTrue(real.gatherLimit() > 0, "needs libc of 64-bit Linux");
        var calls = new FaultInjectingCalls(real);
        var config = always(DirectIo.OFF);
        var lengths = new CopyOnWriteArrayList<Long>();
        calls.hook =
                (call, _) -> {
                    if (call.equals("write")) {
                        lengths.add(StoreDriver.temps(config).getFirst().toFile().length());
                    }
                    return 0;
                };
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            assertThat(new StoreDriver(store).save(BlockKey.of("k"), StoreDriver.block(1, LARGE)))
                    .isEqualTo(BlockResult.Done.STORED);
            assertThat(calls.log).containsSubsequence("createNew", "allocate", "write");
            assertThat(lengths).startsWith(0L);
            assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
        }
    }

    private StoreConfig always(DirectIo mode) {
        return StoreDriver.config(root).withMedium(Durability.NONE, mode);
    }
}
