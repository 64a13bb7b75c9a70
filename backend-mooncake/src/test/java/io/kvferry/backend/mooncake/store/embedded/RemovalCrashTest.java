// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.SegmentTable;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.backend.mooncake.store.tier.BucketEviction;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.backend.mooncake.store.tier.TierConfig;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.RecordingCalls;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/// Objects are removed at every moment of the life of their copies on disk, and the power is cut
/// after every change of the files from the answer on: what was removed is never found again.
class RemovalCrashTest {
    private static final StoreIdentity ONE = new StoreIdentity("", "model", "layout");
    private static final int SIZE = 5000;
    private static final List<String> KEYS = List.of("k0", "k1", "k2");
    private static final int ABSENT = StoreCode.OBJECT_NOT_FOUND.number();

    /// Ways to remove `k1`, which answer 0 or a code.
    enum Removal {
        ONE,
        EXPRESSION,
        ALL;

        int of(EmbeddedClient client) {
            return switch (this) {
                case ONE -> client.remove("k1", true);
                case EXPRESSION -> (int) Math.min(0, client.removeByRegex("k1", true));
                case ALL -> (int) Math.min(0, client.removeAll(true));
            };
        }
    }

    @TempDir Path folder;

    private final Arena arena = Arena.ofShared();
    private RecordingCalls files = new RecordingCalls(FileCalls.ofPlatform());
    private FaultInjectingCalls calls = new FaultInjectingCalls(files);
    private Path path = Path.of("");
    private int lives;

    @BeforeEach
    void begin() {
        files = new RecordingCalls(FileCalls.ofPlatform());
        calls = new FaultInjectingCalls(files);
        path = folder.resolve("t" + lives++);
    }

    @AfterEach
    void close() {
        arena.close();
    }

    private static TierConfig config(Path path) {
        return TierConfig.of(path, 1 << 20)
                .withBuckets(64 << 10, 500, BucketEviction.FIFO)
                .withStaging(100 << 10)
                .withIo(
                        DirectIo.OFF,
                        Duration.ZERO,
                        Duration.ofSeconds(60),
                        Duration.ofSeconds(10));
    }

    private SteppedStore open() {
        var tier = DiskTier.open(config(path), SegmentMemory.PRIVATE, calls);
        var made = new SteppedStore(from -> from, new SegmentTable(), tier);
        made.store.mount("a", 200_000);
        return made;
    }

    private void put(EmbeddedClient client, List<String> keys) {
        for (String key : keys) {
            MemorySegment bytes = arena.allocate(SIZE).fill((byte) key.hashCode());
            var results = new int[1];
            client.put(new StoreBatch().add(key).buffer(bytes), PutOptions.DEFAULT, results);
            assertThat(results).containsOnly(0);
        }
    }

    private static void offload(EmbeddedStore store) {
        while (store.offloads.step(true)) {
            // the next bucket
        }
    }

    /// A removal at the `nth` file call from now on, by a thread of its own: it may have to wait
    /// for the one whose call it is.
    private final class Remover implements FaultInjectingCalls.Hook {
        private final EmbeddedClient client;
        private final Removal removal;
        private final AtomicInteger left;
        private final AtomicReference<@Nullable Thread> thread = new AtomicReference<>();
        private volatile int code = Integer.MIN_VALUE;
        private volatile int answered;

        Remover(EmbeddedClient client, Removal removal, int nth) {
            this.client = client;
            this.removal = removal;
            this.left = new AtomicInteger(nth);
        }

        @Override
        public int before(String call, long number) {
            if (left.getAndDecrement() == 0) {
                var started = new Thread(this::remove);
                thread.set(started);
                started.start();
                while (started.getState() == Thread.State.RUNNABLE) {
                    Thread.onSpinWait(); // until it is done or waits
                }
            }
            return 0;
        }

        private void remove() {
            code = removal.of(client);
            answered = files.count();
        }

        /// @return whether the removal has begun
        boolean join() throws InterruptedException {
            Thread started = thread.get();
            if (started != null) {
                started.join();
            }
            return started != null;
        }
    }

    @ParameterizedTest
    @EnumSource(Removal.class)
    void aRemovalDuringTheWriteOfABucketHolds(Removal removal) throws Exception {
        for (int nth = 0; removesAt(nth, removal); nth++) {
            begin();
        }
    }

    private boolean removesAt(int nth, Removal removal) throws Exception {
        try (var made = open()) {
            var client = made.store.client(ONE);
            put(client, KEYS);
            var remover = new Remover(client, removal, nth);
            calls.hook = remover;
            offload(made.store);
            calls.hook = FaultInjectingCalls.PASS;
            if (!remover.join()) {
                assertThat(nth).isGreaterThan(5);
                return false;
            }
            assertThat(remover.code).as("at call %d", nth).isZero();
            offload(made.store);
            verifyGone(remover.answered, "removed at call " + nth);
            if (removal != Removal.ALL) {
                verifyThere("k0");
            }
            return true;
        }
    }

    @Test
    void aRemovalHoldsWhateverCallFailed() throws IOException {
        for (String call :
                List.of("createNew", "openOver", "write", "syncData", "close", "syncFolder")) {
            for (int nth = 0; nth < 4; nth++) {
                for (boolean undeletable : new boolean[] {false, true}) {
                    begin();
                    failsFrom(call, nth, undeletable);
                }
            }
        }
    }

    private void failsFrom(String call, int nth, boolean undeletable) throws IOException {
        String what = call + " fails from " + nth + (undeletable ? ", unlink, too" : "");
        try (var made = open()) {
            var client = made.store.client(ONE);
            put(client, KEYS);
            var skip = new AtomicInteger(nth);
            calls.hook =
                    (name, _) -> {
                        boolean fails = name.equals(call) && skip.getAndDecrement() <= 0;
                        return fails || (undeletable && name.equals("unlink")) ? -Errno.EIO : 0;
                    };
            made.store.offloads.step(true);
            int code = client.remove("k1", true);
            assertThat(code).as(what).isIn(0, StoreCode.FILE_WRITE_FAIL.number());
            if (code == 0) {
                verifyGone(files.count(), what);
            } else { // nor does anybody else get another answer
                assertThat(client.remove("k1", true)).as(what).isEqualTo(code);
                assertThat(client.removeAll(true)).as(what).isEqualTo(code);
            }
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(client.remove("k1", true)).as(what).isEqualTo(ABSENT);
            int answered = files.count();
            offload(made.store);
            verifyGone(answered, what);
        }
    }

    @Test
    void anEvictedBucketDoesNotComeBackAfterARemoval() throws IOException {
        try (var made = open()) {
            var client = made.store.client(ONE);
            put(client, KEYS);
            offload(made.store);
            calls.hook = (name, _) -> name.equals("unlink") ? -Errno.EIO : 0;
            for (int i = 0; i < 100; i++) { // more than the tier holds
                put(client, List.of("m" + i));
                offload(made.store);
                made.store.tick();
                made.pass(Duration.ofMillis(1));
            }
            assertThat(client.removeAll(true)).isEqualTo(StoreCode.FILE_WRITE_FAIL.number());
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(client.removeAll(true)).isZero();
            verifyGone(files.count(), "evicted");
        }
    }

    @Test
    void aBucketThatCannotBeReadAtTheStartDoesNotComeBackAfterARemoval() throws IOException {
        try (var made = open()) {
            put(made.store.client(ONE), KEYS);
            offload(made.store);
        }
        calls.hook = (name, _) -> name.equals("read") ? -Errno.EIO : 0;
        try (var made = open()) {
            assertThat(made.store.keyCount()).isZero();
        }
        verifyThere("k1"); // nobody removed anything
        try (var made = open()) {
            assertThat(made.store.client(ONE).removeAll(true)).isZero();
            verifyGone(files.count(), "unread");
        }
    }

    private void verifyThere(String key) throws IOException {
        verify(files.count(), RecordingCalls.Unsynced.LOST, key, 1, "complete");
    }

    private void verifyGone(int from, String what) throws IOException {
        for (var unsynced : RecordingCalls.Unsynced.values()) {
            for (int count = from; count <= files.count(); count++) {
                verify(count, unsynced, "k1", 0, what);
            }
        }
    }

    private void verify(
            int count, RecordingCalls.Unsynced unsynced, String key, int found, String what)
            throws IOException {
        Path left = memory().resolve(folder.getFileName() + "-" + unsynced + "-" + count);
        try {
            files.survive(count, unsynced, path, left);
            Files.setPosixFilePermissions(left, PosixFilePermissions.fromString("rwx------"));
            var tier = DiskTier.open(config(left), SegmentMemory.PRIVATE, FileCalls.ofPlatform());
            try (var made = new SteppedStore(from -> from, new SegmentTable(), tier)) {
                var results = new int[1];
                made.store.client(ONE).exists(List.of(key), false, results);
                assertThat(results[0])
                        .as("%s: %s after change %d, %s", what, key, count, unsynced)
                        .isEqualTo(found);
            }
        } finally {
            delete(left);
        }
    }

    /// A disk is much slower at making and deleting so many files.
    private Path memory() {
        Path memory = Path.of("/dev/shm");
        return Files.isWritable(memory) ? memory : folder;
    }

    private static void delete(Path path) {
        try (var all = Files.walk(path)) {
            all.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
