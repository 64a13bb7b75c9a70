// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.file.FileBackend;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.toolkit.memory.FullHeap;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.locks.LockSupport;

/// A process whose heap is full for a while: no thread of a store or of the FILE backend ends, and
/// all work afterwards.
class FullHeapTest {
    @TempDir Path root;

    @Test
    void losesNoThreadToAHeapThatIsFullForAWhile() throws Exception {
        assertThat(FullHeap.run(root, 48, Duration.ofSeconds(120), Child.class, root.toString()))
                .contains("all go on");
    }

    static final class Child {
        private static final Duration FULL = Duration.ofSeconds(2);
        private static final long BLOCK_BYTES = 5000;
        private static volatile boolean over;

        private Child() {}

        public static void main(String[] args) throws InterruptedException {
            var base = StoreDriver.config(Path.of(args[0]));
            var times = base.times();
            var config =
                    base.with(
                            new StoreConfig.Times(
                                    times.io(),
                                    Duration.ZERO,
                                    times.tempMaxAge(),
                                    Duration.ofMillis(20),
                                    Duration.ofMillis(1)));
            try (var store = BlockStore.open(config, StoreListener.NONE);
                    var backend = new FileBackend("a", false, 1, 4)) {
                var driver = new StoreDriver(store);
                driver.save(BlockKey.of("kept"), StoreDriver.block(1, BLOCK_BYTES));
                var before = threads();
                var users = List.of(user(store, 0), user(store, 1));
                FullHeap.fill(Deadline.in(FULL));
                over = true;
                for (var user : users) {
                    user.join();
                }
                var lost = new TreeSet<>(before);
                lost.removeAll(threads());
                var loaded = StoreDriver.empty(BLOCK_BYTES);
                var result = driver.load(BlockKey.of("kept"), loaded);
                boolean right =
                        result == BlockResult.Done.LOADED
                                && StoreDriver.same(StoreDriver.block(1, BLOCK_BYTES), loaded)
                                && backend.capabilities().has(Feature.CANCEL);
                System.out.println(
                        lost.isEmpty() && right ? "all go on" : "lost " + lost + ", " + result);
            }
        }

        /// Threads that no request starts again.
        private static TreeSet<String> threads() {
            var names = new TreeSet<String>();
            Thread.getAllStackTraces().keySet().stream()
                    .map(Thread::getName)
                    .filter(name -> name.startsWith("disk-") || name.startsWith("file-deadlines"))
                    .forEach(names::add);
            return names;
        }

        /// Saves and loads, some of it with deadlines that pass, whatever comes of it.
        private static Thread user(BlockStore store, int number) {
            var segments = StoreDriver.block(number, BLOCK_BYTES);
            var targets = StoreDriver.empty(BLOCK_BYTES);
            return Thread.ofPlatform()
                    .start(() -> {
                        for (int i = 0; !over; i++) {
                            try {
                                var limit = Deadline.in(Duration.ofNanos(i % 3 * 1_000_000L));
                                var key = BlockKey.of(number + " " + i);
                                store.save(key, segments, limit, (_, _) -> {}, 0);
                                store.load(key, targets, limit, (_, _) -> {}, 0);
                                store.locate(List.of(key), limit, (_, _) -> {}, 0);
                            } catch (RuntimeException | Error _) {
                                Thread.onSpinWait();
                            }
                            LockSupport.parkNanos(100_000);
                        }
                    });
        }
    }
}
