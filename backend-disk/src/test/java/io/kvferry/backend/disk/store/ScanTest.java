// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.sun.management.ThreadMXBean;

import io.kvferry.backend.disk.BlockFiles;
import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.FleetKey;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.space.KeyDigest;
import io.kvferry.toolkit.secret.FleetSecret;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.time.Instant;
import java.util.Collections;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

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

    /// The scan has seen the file before it is deleted.
    @Test
    void aScanBesideAClearBringsNothingBack() throws Exception {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        var listed = new CountDownLatch(1);
        var go = new CountDownLatch(1);
        try (var store = BlockStore.open(StoreDriver.config(root), StoreListener.NONE, calls);
                var other = open()) {
            var keys = IntStream.range(0, 8).mapToObj(i -> BlockKey.of("k" + i)).toList();
            keys.forEach(key -> new StoreDriver(other).save(key, StoreDriver.block(1, 100)));
            var looks = new AtomicInteger();
            calls.hook =
                    (call, _) -> {
                        if (call.equals("status") && looks.incrementAndGet() == keys.size()) {
                            listed.countDown();
                            await(go);
                        }
                        return 0;
                    };
            var scan = Thread.ofPlatform().start(store::scan);
            await(listed);
            other.clear();
            var clear = Thread.ofPlatform().start(store::clear);
            var limit = Deadline.in(Duration.ofSeconds(60));
            while (clear.getState() != Thread.State.BLOCKED) { // by the scan
                assertThat(clear.isAlive() && !limit.passed()).as("waits for the scan").isTrue();
                Thread.sleep(1);
            }
            go.countDown();
            scan.join();
            clear.join();
            assertThat(keys).noneMatch(store::mayContain);
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            assertThat(latch.await(60, TimeUnit.SECONDS)).isTrue();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
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

    /// Both ways to list a folder come to the same.
    @ParameterizedTest
    @ValueSource(strings = {"posix", "channel"})
    void takesWhatIsABlockAndNothingElse(String kind) throws Exception {
        FileCalls calls = kind.equals("posix") ? FileCalls.ofPlatform() : FileCalls.ofChannels();
        var config = StoreDriver.config(root);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var folder = store.core().folder();
            Path zero = folder.subfolder(0);
            String name = "0".repeat(64) + ".kvb";
            Files.write(zero.resolve(name), new byte[8192]);
            var foreign =
                    List.of(
                            "notes.txt",
                            "0".repeat(63) + ".kvb",
                            "0".repeat(65) + ".kvb",
                            "0".repeat(63) + "A.kvb",
                            "0".repeat(63) + "g.kvb",
                            "0".repeat(63) + ":.kvb",
                            "0".repeat(64) + ".KVB",
                            "0".repeat(64) + ".kvb.bak",
                            "1" + "0".repeat(63) + ".kvb",
                            "\u00e9".repeat(32) + "a".repeat(4)); // 68 bytes
            for (String each : foreign) {
                Files.write(zero.resolve(each), new byte[8192]);
            }
            Files.createDirectory(zero.resolve("0".repeat(63) + "1.kvb"));
            var useless =
                    List.of(
                            Files.createFile(zero.resolve("0".repeat(63) + "2.kvb")),
                            Files.write(zero.resolve("0".repeat(63) + "3.kvb"), new byte[5]),
                            Files.createSymbolicLink(
                                    zero.resolve("0".repeat(63) + "4.kvb"), zero.resolve(name)));
            store.core().scan();
            assertThat(store.stats().blocks()).isEqualTo(1);
            assertThat(store.stats().usedBytes()).isEqualTo(8192);
            var digest = store.core().folder().block(name).orElseThrow();
            assertThat(store.core().catalog().contains(digest)).isTrue();
            assertThat(store.stats().corrupt()).isEqualTo(useless.size());
            assertThat(useless).allMatch(each -> !Files.exists(each, LinkOption.NOFOLLOW_LINKS));
            assertThat(foreign).allMatch(each -> Files.exists(zero.resolve(each)));
            Files.delete(zero.resolve(name));
            store.core().scan();
            assertThat(store.stats().blocks()).isZero();
        }
    }

    @Test
    void findsTheBlocksOfAFleetWithASecret() throws Exception {
        var secret = Files.writeString(root.resolve("secret"), "the secret of one fleet");
        var keyed =
                StoreDriver.config(root.resolve("store"))
                        .withKey(FleetKey.of(FleetSecret.read(secret)));
        var key = BlockKey.of("k");
        try (var store = BlockStore.open(keyed, StoreListener.NONE, FileCalls.ofPlatform())) {
            new StoreDriver(store).save(key, StoreDriver.block(1, 100));
            store.core().catalog().invalidate(key.digest());
            store.core().scan();
            assertThat(store.mayContain(key)).isTrue();
        }
    }

    /// A folder that cannot be read makes no block unknown, and what was found elsewhere is found
    /// by the next scan.
    @Test
    void losesNothingByAScanThatFails() throws Exception {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        var config = StoreDriver.config(root);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls);
                var other = open()) {
            var keys = IntStream.range(0, 64).mapToObj(i -> BlockKey.of("k" + i, i)).toList();
            for (var key : keys.subList(0, 32)) {
                new StoreDriver(other).save(key, StoreDriver.block(1, 100));
            }
            store.core().scan();
            for (var key : keys.subList(32, 64)) {
                new StoreDriver(other).save(key, StoreDriver.block(1, 100));
            }
            age(store);
            var lists = new AtomicInteger();
            calls.hook =
                    (call, _) ->
                            call.equals("list") && lists.incrementAndGet() == 20 ? -Errno.EIO : 0;
            assertThatThrownBy(store.core()::scan)
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining("EIO");
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(keys.subList(0, 32)).allMatch(store::mayContain);
            store.core().scan();
            assertThat(keys).allMatch(store::mayContain);
        }
    }

    /// As after a fault of the medium: what cannot be looked at is not there, and the rest is.
    @Test
    void passesOverAFileWhoseStatusCannotBeRead() throws Exception {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        var config = StoreDriver.config(root);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls);
                var other = open()) {
            for (int i = 0; i < 10; i++) {
                new StoreDriver(other).save(BlockKey.of("k" + i), StoreDriver.block(1, 100));
            }
            var looks = new AtomicInteger();
            calls.hook =
                    (call, _) ->
                            call.equals("status") && looks.incrementAndGet() == 4
                                    ? -Errno.EUCLEAN
                                    : 0;
            store.core().scan();
            assertThat(store.stats().blocks()).isEqualTo(9);
            calls.hook = FaultInjectingCalls.PASS;
            age(store);
            store.core().scan();
            assertThat(store.stats().blocks()).isEqualTo(10);
        }
    }

    @Test
    void opensAlthoughAUselessFileCannotBeDeleted() throws Exception {
        var key = BlockKey.of("k");
        Path useless;
        Path temp;
        try (var store = open()) {
            new StoreDriver(store).save(key, StoreDriver.block(1, 100));
            var folder = store.core().folder();
            useless = Files.createFile(folder.subfolder(0).resolve("0".repeat(64) + ".kvb"));
            temp = Files.createFile(folder.temps(0).resolve("left-over"));
        }
        try {
            Assumptions.assumeTrue(
                    immutable(useless, true) && immutable(temp, true),
                    "chattr +i was refused; run as root on a file system that has it to include this");
            try (var store = open()) {
                assertThat(store.mayContain(key)).isTrue();
                assertThat(store.stats().blocks()).isEqualTo(1);
                assertThat(store.stats().corrupt()).isZero();
                long later = Instant.now().plusSeconds(86_400).toEpochMilli();
                new FolderScan(store.core()).reapTemps(later);
                assertThat(store.core().counters().reapedTemps.sum()).isZero();
            }
        } finally {
            immutable(useless, false);
            immutable(temp, false);
        }
    }

    @Test
    void aClearPassesOverAFileThatCannotBeDeletedAndFailsAtTheEnd() throws Exception {
        try (var store = open()) {
            var folder = store.core().folder();
            for (int i = 0; i < 64; i++) { // in most subfolders
                new StoreDriver(store).save(BlockKey.of("k" + i), StoreDriver.block(1, 100));
            }
            Path bad = Files.createFile(folder.bad().resolve("0"));
            var blocks = BlockFiles.under(root);
            Path kept = Collections.min(blocks); // the first folders are emptied first
            Path notes = Files.createFile(kept.resolveSibling("notes.txt"));
            try {
                Assumptions.assumeTrue(
                        immutable(kept, true) && immutable(notes, true),
                        "chattr +i was refused; run as root on a file system that has it to include this");
                assertThatThrownBy(store::clear)
                        .isInstanceOfSatisfying(
                                KvFerryException.class,
                                e -> assertThat(e.code()).isEqualTo(ErrorCode.STORAGE_IO))
                        .hasMessageContaining("cannot delete " + kept);
                assertThat(BlockFiles.under(root)).containsExactly(kept);
                assertThat(bad).doesNotExist();
                store.scan();
                assertThat(store.stats().blocks()).isEqualTo(1);
                immutable(kept, false);
                assertThat(store.clear()).as("beside a file that is no block").isEqualTo(1);
                assertThat(notes).exists();
            } finally {
                immutable(kept, false);
                immutable(notes, false);
            }
        }
    }

    private static boolean immutable(Path file, boolean now) throws Exception {
        try {
            var command = new ProcessBuilder("chattr", now ? "+i" : "-i", file.toString());
            return command.start().waitFor() == 0;
        } catch (IOException _) {
            return false; // no such command here
        }
    }

    /// As on a machine where other processes save now and then: all folders changed.
    @Test
    void allocatesNothingPerFileThatIsKnown() throws Exception {
        Assumptions.assumeTrue(
                FileCalls.ofPlatform().gatherLimit() > 0,
                "needs libc of 64-bit Linux: the JDK makes objects of each name");
        int files = 4_000;
        try (var store = open()) {
            var random = new SplittableRandom(1);
            for (int i = 0; i < files; i++) {
                var digest = new KeyDigest(random.nextLong(), i, random.nextLong(), i);
                try (var file =
                        new RandomAccessFile(store.core().folder().file(digest).toFile(), "rw")) {
                    file.setLength(4096);
                }
            }
            store.core().scan();
            assertThat(store.stats().blocks()).isEqualTo(files);
            var threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
            long least = Long.MAX_VALUE;
            for (int i = 0; i < 40; i++) {
                long before = threads.getCurrentThreadAllocatedBytes();
                store.core().scan();
                least = Math.min(least, threads.getCurrentThreadAllocatedBytes() - before);
                assertThat(store.core().foldersListed()).isEqualTo(StoreFolder.FOLDERS);
                for (int j = 0; j < StoreFolder.FOLDERS; j++) {
                    Files.setLastModifiedTime(
                            store.core().folder().subfolder(j), FileTime.from(Instant.now()));
                }
            }
            assertThat(least / files).as("bytes per known file").isLessThan(8);
            assertThat(store.stats().blocks()).isEqualTo(files);
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
