// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.space.KeyDigest;
import io.kvferry.toolkit.memory.FullHeap;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;

/// Runs each call of a store in a process with few heap bytes left, from none to enough, so that
/// its allocations fail one after the other, on any thread. In every case the call ends exactly
/// once, the catalog matches the folder, and the store leaks nothing.
class BlockStoreShortOfHeapTest {
    @TempDir Path root;

    /// Calls in which something was lost once.
    @Test
    void losesNothingWhicheverAllocationFails() throws Exception {
        sweep(32, Call.TOUCH, Call.EVICT, Call.SCAN_MANY, Call.CLEAR, Call.CLOSE, Call.OPEN);
    }

    @Tag("soak")
    @ParameterizedTest
    @EnumSource(Call.class)
    void losesNothingInSmallSteps(Call call) throws Exception {
        sweep(16, call);
    }

    private void sweep(int step, Call... calls) throws Exception {
        var arguments = new ArrayList<>(List.of(root.toString(), Integer.toString(step)));
        Arrays.stream(calls).map(Call::name).forEach(arguments::add);
        assertThat(
                        FullHeap.run(
                                root,
                                16,
                                Duration.ofSeconds(240),
                                Child.class,
                                arguments.toArray(String[]::new)))
                .contains("nothing is lost");
    }

    enum Call {
        SAVE {
            @Override
            void work(Child child) {
                child.saves(child.fresh, child.small);
            }
        },
        SAVE_LARGE {
            @Override
            void work(Child child) {
                child.saves(child.fresh, child.large);
            }

            @Override
            int stepping() {
                return 40;
            }
        },
        SAVE_AGAIN {
            @Override
            void prepare(Child child) {
                child.stores("victim", child.small);
            }

            @Override
            void work(Child child) {
                child.saves(child.victim, child.small);
            }
        },
        /// Over the file of a victim.
        SAVE_AT_THE_QUOTA {
            @Override
            void prepare(Child child) {
                child.fillsQuota(child.small);
            }

            @Override
            void work(Child child) {
                child.saves(child.fresh, child.small);
            }
        },
        /// The victims are of another size.
        SAVE_LARGE_AT_THE_QUOTA {
            @Override
            void prepare(Child child) {
                child.fillsQuota(child.small);
            }

            @Override
            void work(Child child) {
                child.saves(child.fresh, child.large);
            }

            @Override
            int stepping() {
                return 40;
            }
        },
        LOAD {
            @Override
            void prepare(Child child) {
                child.stores("victim", child.small);
            }

            @Override
            void work(Child child) {
                child.loads(child.victim, child.smallTarget);
            }
        },
        LOAD_LARGE {
            @Override
            void prepare(Child child) {
                child.stores("victim", child.large);
            }

            @Override
            void work(Child child) {
                child.loads(child.victim, child.largeTarget);
            }

            @Override
            int stepping() {
                return 40;
            }
        },
        LOAD_DAMAGED {
            @Override
            void prepare(Child child) {
                child.stores("victim", child.small);
                child.damages(child.victim);
            }

            @Override
            void work(Child child) {
                child.loads(child.victim, child.smallTarget);
            }

            @Override
            boolean isDone(@Nullable BlockResult result) {
                return result != null && result.failedWith(ErrorCode.CORRUPT);
            }
        },
        LOCATE {
            @Override
            void prepare(Child child) {
                child.stores("victim", child.small);
            }

            @Override
            void work(Child child) {
                child.locates();
            }
        },
        TOUCH {
            @Override
            void prepare(Child child) {
                child.stores("victim", child.small);
            }

            @Override
            void work(Child child) {
                child.store.touch(child.keys);
            }
        },
        EVICT {
            @Override
            void prepare(Child child) {
                child.fillsQuota(child.small);
            }

            @Override
            void work(Child child) {
                child.store.core().evictor().evictToLowWatermark();
            }
        },
        SCAN {
            @Override
            void prepare(Child child) {
                child.stores("victim", child.small);
                child.deletes(child.victim);
                child.othersSave(0, 20);
                child.agesFolders();
            }

            @Override
            void work(Child child) {
                child.store.scan();
            }

            @Override
            int stepping() {
                return 3;
            }
        },
        /// What the catalog has no room for.
        SCAN_MANY {
            @Override
            void prepare(Child child) {
                child.reopens();
                child.othersSave(0, 1000);
                child.store.scan();
                child.othersSave(1000, 1060);
                child.agesFolders();
            }

            @Override
            void work(Child child) {
                child.store.scan();
            }

            @Override
            int stepping() {
                return 2800;
            }

            @Override
            long quota() {
                return Long.MAX_VALUE / 2;
            }
        },
        CLEAR {
            @Override
            void prepare(Child child) {
                child.fillsQuota(child.small);
            }

            @Override
            void work(Child child) {
                child.store.clear();
            }

            @Override
            int stepping() {
                return 20;
            }
        },
        CLOSE {
            @Override
            void work(Child child) {
                child.store.close();
            }

            @Override
            void mend(Child child) {
                child.reopens();
            }
        },
        OPEN {
            @Override
            void prepare(Child child) {
                child.store.close();
                child.assertAllEnded();
            }

            @Override
            void work(Child child) {
                child.store = BlockStore.open(child.config, child);
            }

            @Override
            void mend(Child child) {
                child.reopens();
            }

            @Override
            int stepping() {
                return 2000;
            }
        };

        void prepare(Child child) {}

        abstract void work(Child child);

        /// With memory enough again.
        void mend(Child child) {}

        boolean isDone(@Nullable BlockResult result) {
            return !(result instanceof BlockResult.Failed);
        }

        int stepping() {
            return 1;
        }

        long quota() {
            return Child.SMALL_FILES * Child.SMALL_FILE_BYTES;
        }
    }

    static final class Child implements FullHeap.Trial, StoreListener, BlockCallback {
        private static final long SMALL = 5000;
        private static final int LOCKS = 2;
        private static final long LARGE = 600 << 10;
        private static final int SMALL_FILES = 60; // a large one takes the room of nearly all
        private static final long SMALL_FILE_BYTES = 12_288;
        private static final byte[] EMPTY = new byte[4096];
        private static final long LIMIT_NANOS = Duration.ofSeconds(15).toNanos();
        private static final int MOST = 1 << 20;

        private final Call call;
        private final StoreConfig config;
        private final List<MemorySegment> small = StoreDriver.block(1, SMALL);
        private final List<MemorySegment> large = StoreDriver.block(2, LARGE);
        private final List<MemorySegment> smallTarget = StoreDriver.empty(SMALL);
        private final List<MemorySegment> largeTarget = StoreDriver.empty(LARGE);
        private final BlockKey victim = BlockKey.of("victim");
        private final List<BlockKey> keys = List.of(victim, BlockKey.of("absent"));
        private BlockStore store;
        private StoreDriver driver;
        private BlockKey fresh = victim;
        private Deadline limit = Deadline.in(StoreDriver.PATIENCE);
        private int trials;
        private TreeSet<String> threads = new TreeSet<>();
        private List<String> files = List.of();
        private final BlockKey[] stored = new BlockKey[SMALL_FILES];
        private final boolean[] toldGone = new boolean[SMALL_FILES];
        private volatile int storedCount;
        private boolean accepted;
        private volatile int told;
        private volatile @Nullable BlockResult result;

        Child(Call call, Path root) {
            this.call = call;
            var base = StoreDriver.config(root).with(new StoreConfig.Pools(1, 1, 1));
            var times = base.times();
            this.config =
                    base.withQuota(call.quota(), 0.95, 1)
                            .with(
                                    new StoreConfig.Times(
                                            times.io(),
                                            Duration.ZERO,
                                            times.tempMaxAge(),
                                            Duration.ofHours(1),
                                            Duration.ofMillis(1)));
            this.store = BlockStore.open(config, this);
            this.driver = new StoreDriver(store);
            assertWorks(); // the threads have made what they work with
        }

        public static void main(String[] args) {
            try {
                for (int i = 2; i < args.length; i++) {
                    var call = Call.valueOf(args[i]);
                    int step = Integer.parseInt(args[1]) * call.stepping();
                    var child = new Child(call, Path.of(args[0]).resolve(call.name()));
                    System.out.println(call + ": " + FullHeap.sweep(step, MOST, child));
                    child.store.close();
                }
                System.out.println("\nnothing is lost");
                System.exit(0);
            } catch (RuntimeException | Error e) { // else threads that are not daemons go on
                e.printStackTrace(System.out);
                System.exit(1);
            }
        }

        @Override
        public void removed(KeyDigest digest) {
            for (int i = 0; i < storedCount; i++) { // without memory
                if (stored[i].digest().a() == digest.a()) {
                    toldGone[i] = true;
                }
            }
        }

        @Override
        public void completed(long tag, BlockResult outcome) {
            result = outcome;
            told++; // the calls of one trial are not at the same time
        }

        @Override
        public void prepare() {
            fresh = BlockKey.of("fresh " + trials++);
            limit = Deadline.in(StoreDriver.PATIENCE);
            store.clear();
            storedCount = 0;
            accepted = false;
            told = 0;
            result = null;
            threads = threads();
            files = openFilesOnce(LOCKS);
            call.prepare(this);
            Arrays.fill(toldGone, false);
            System.gc(); // else filling the heap may take a collection for every few bytes
        }

        @Override
        public boolean work() {
            call.work(this);
            return call.isDone(result);
        }

        void saves(BlockKey key, List<MemorySegment> segments) {
            accepted = store.save(key, segments, limit, this, 0);
            await();
        }

        void loads(BlockKey key, List<MemorySegment> segments) {
            accepted = store.load(key, segments, limit, this, 0);
            await();
        }

        void locates() {
            accepted = store.locate(keys, limit, this, 0);
            await();
        }

        private void await() {
            long began = System.nanoTime();
            while (told == 0 && System.nanoTime() - began < LIMIT_NANOS) {
                LockSupport.parkNanos(50_000);
            }
        }

        void stores(String name, List<MemorySegment> segments) {
            assertThat(driver.save(BlockKey.of(name), segments)).isEqualTo(BlockResult.Done.STORED);
            stored[storedCount++] = BlockKey.of(name);
        }

        void fillsQuota(List<MemorySegment> segments) {
            stores("victim", segments);
            for (int i = 1; i < SMALL_FILES; i++) {
                stores("other " + i, segments);
            }
        }

        /// The open files once they are so many: the store opens its lock files anew at times.
        private List<String> openFilesOnce(int count) {
            long began = System.nanoTime();
            var open = openFiles();
            while (open.size() != count && System.nanoTime() - began < LIMIT_NANOS) {
                LockSupport.parkNanos(1_000_000);
                open = openFiles();
            }
            return open;
        }

        private Path file(BlockKey key) {
            return store.core().folder().file(key.digest());
        }

        void deletes(BlockKey key) {
            try {
                Files.delete(file(key));
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        void damages(BlockKey key) {
            try {
                byte[] bytes = Files.readAllBytes(file(key));
                bytes[5000] ^= 1;
                Files.write(file(key), bytes);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        /// What look like blocks of another process.
        void othersSave(int from, int to) {
            try {
                for (int i = from; i < to; i++) {
                    var digest = BlockKey.of("adopted " + i).digest();
                    Files.write(store.core().folder().file(digest), EMPTY);
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        /// A scan that has listed the folders passes over them.
        void agesFolders() {
            try {
                var time = FileTime.from(Instant.now().minus(Duration.ofHours(trials)));
                for (int i = 0; i < StoreFolder.FOLDERS; i++) {
                    Files.setLastModifiedTime(store.core().folder().subfolder(i), time);
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        void reopens() {
            store.close();
            assertAllEnded();
            store = BlockStore.open(config, this);
            driver = new StoreDriver(store);
        }

        void assertAllEnded() {
            long began = System.nanoTime();
            while (!threads().isEmpty() && System.nanoTime() - began < LIMIT_NANOS) {
                LockSupport.parkNanos(1_000_000);
            }
            assertThat(threads()).isEmpty();
        }

        @Override
        public void check(int left) {
            if (accepted) {
                await();
                assertThat(told).as("told, %d bytes left", left).isEqualTo(1);
            }
            call.mend(this);
            store.scan();
            StoreDriver.assertKnowsItsBytes(store);
            StoreDriver.assertReservesNothing(store);
            assertThat(threads()).as("threads, %d bytes left", left).isEqualTo(threads);
            assertThat(openFilesOnce(files.size()))
                    .as("open files, %d bytes left", left)
                    .isEqualTo(files);
            assertThat(temps()).as("unfinished files, %d bytes left", left).isEmpty();
            for (int i = 0; i < storedCount; i++) {
                if (!Files.exists(file(stored[i]))) {
                    assertThat(toldGone[i])
                            .as("told that %s is gone, %d bytes left", stored[i], left)
                            .isTrue();
                }
            }
            assertWorks();
            if (!accepted) {
                assertThat(told).as("told though refused, %d bytes left", left).isZero();
            }
        }

        private void assertWorks() {
            var next = BlockKey.of("next " + trials);
            assertThat(driver.save(next, small)).isEqualTo(BlockResult.Done.STORED);
            var target = StoreDriver.empty(SMALL);
            assertThat(driver.load(next, target)).isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(small, target)).isTrue();
        }

        private List<Path> temps() {
            return IntStream.range(0, StoreFolder.FOLDERS)
                    .mapToObj(i -> store.core().folder().temps(i).toFile().listFiles())
                    .flatMap(found -> Optional.ofNullable(found).stream())
                    .flatMap(Arrays::stream)
                    .map(java.io.File::toPath)
                    .toList();
        }

        private static TreeSet<String> threads() {
            var names = new TreeSet<String>();
            for (Thread thread : Thread.getAllStackTraces().keySet()) {
                if (thread.getName().startsWith("disk-")) {
                    names.add(thread.getName());
                }
            }
            return names;
        }

        /// Those below the store's root. The JDK loses those of folders that it lists.
        private List<String> openFiles() {
            try (var found = Files.list(Path.of("/proc/self/fd"))) {
                return found.filter(Files::isRegularFile)
                        .map(Child::target)
                        .filter(target -> target.startsWith(config.root().toString()))
                        .sorted()
                        .toList();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        private static String target(Path link) {
            try {
                return Files.readSymbolicLink(link).toString();
            } catch (IOException _) {
                return "gone";
            }
        }
    }
}
