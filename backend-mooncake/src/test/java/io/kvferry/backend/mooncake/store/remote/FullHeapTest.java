// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.memory.FullHeap;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.locks.LockSupport;

/// An owner and one of its users in a process whose heap is full for a while, during which objects
/// are stored and read: afterwards both go on, a new user comes in, and no memory of the owner is
/// lost.
class FullHeapTest {
    @TempDir Path root;

    @Test
    void storesAndReadsAgainAfterTheHeapWasFull() throws Exception {
        assertThat(FullHeap.run(root, 96, Duration.ofSeconds(240), Child.class))
                .contains("goes on: true", "a new user: true", "bytes left: 0", "wrong: 0");
    }

    static final class Child {
        private static final Duration FULL = Duration.ofSeconds(2);
        private static final Duration LATEST = Duration.ofSeconds(60);
        private static final long BYTES = 256 << 10;
        private static volatile boolean over;
        private static volatile int wrong;

        /// How far the owner's clock is ahead.
        private static volatile long later;

        private Child() {}

        public static void main(String[] args) throws Exception {
            var settings =
                    new StoreOwner.Settings(
                            "127.0.0.1",
                            0,
                            64 << 20,
                            StoreConfig.DEFAULT
                                    .withChecksums(true)
                                    .steppedBy(() -> System.nanoTime() + later),
                            Duration.ofSeconds(60),
                            Optional.empty(),
                            false);
            try (var arena = Arena.ofShared();
                    var owner = StoreOwner.start(settings);
                    var store = open(owner)) {
                var user = new User(store, arena);
                for (int i = 0; i < 50; i++) { // all of it has run once
                    assertThat(user.storesAndReads(i)).isTrue();
                }
                var busy = Thread.ofPlatform().start(() -> use(user));
                FullHeap.fill(Deadline.in(FULL));
                over = true;
                busy.join();
                System.out.println("\ngoes on: " + succeeds(user));
                try (var late = open(owner)) {
                    var lateUser = new User(late, arena);
                    System.out.println("\na new user: " + succeeds(lateUser));
                }
                later = Duration.ofHours(1).toNanos(); // the end of puts that were given up
                var limit = Deadline.in(LATEST);
                do {
                    owner.store().tick();
                    store.removeAll(true);
                    LockSupport.parkNanos(100_000_000);
                } while (owner.store().usedBytes() > 0 && !limit.passed());
                System.out.println("\nbytes left: " + owner.store().usedBytes());
                System.out.println("\nwrong: " + wrong);
                System.exit(0);
            }
        }

        private static RemoteStore open(StoreOwner owner) {
            var config =
                    new RemoteStoreConfig(
                            owner.address(),
                            Optional.empty(),
                            Optional.empty(),
                            false,
                            Duration.ofSeconds(5),
                            Duration.ofSeconds(5));
            return RemoteStore.open(config, new StoreIdentity("test", "model", "layout"), true);
        }

        private static boolean succeeds(User user) {
            var limit = Deadline.in(LATEST);
            for (int i = 1_000; !limit.passed(); i++) {
                if (user.storesAndReads(i)) {
                    return true;
                }
                LockSupport.parkNanos(50_000_000);
            }
            return false;
        }

        private static void use(User user) {
            for (int i = 100; !over; i++) {
                try {
                    var _ = user.storesAndReads(i % 1_000);
                } catch (RuntimeException | Error _) {
                    LockSupport.parkNanos(1_000_000);
                }
            }
        }
    }

    /// Stores and reads one object after another.
    private static final class User {
        private final Store store;
        private final MemorySegment value;
        private final MemorySegment back;
        private final StoreBatch batch = new StoreBatch();
        private final int[] stored = new int[1];
        private final long[] read = new long[1];

        User(Store store, Arena arena) {
            this.store = store;
            this.value = arena.allocate(Child.BYTES, 64);
            this.back = arena.allocate(Child.BYTES, 64);
            store.register(value);
            store.register(back);
        }

        boolean storesAndReads(int number) {
            var key = "k" + number;
            value.fill((byte) number);
            back.fill((byte) ~number);
            store.put(batch.clear().add(key).buffer(value), PutOptions.DEFAULT, stored);
            store.get(batch.clear().add(key).buffer(back), read);
            if (stored[0] != 0 || read[0] != Child.BYTES) {
                return false;
            }
            if (back.mismatch(value) >= 0) {
                Child.wrong++;
            }
            return true;
        }
    }
}
