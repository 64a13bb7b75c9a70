// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.block.FleetKey;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.secret.FleetSecret;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;

/// Several processes on one folder at its quota, with slow file calls, large blocks that need many
/// calls, and deadlines that pass at any of them. Callers reuse the memory of a request as soon as
/// they have its result, janitors delete unfinished files, and one process closes its store
/// meanwhile. Nothing damages files, so none may be found corrupt, and loads must return what was
/// saved.
class DelayTest {
    private static final int KEYS = 24;
    private static final long QUOTA = 4_000_000;
    private static final int PROCESSES = 3;
    private static final int CALLERS = 3;

    /// Of few sizes, so that a save mostly finds a victim to write over.
    private static final long[][] SHAPES = {
        {5000, 3, 4093}, {30_000, 30_000, 30_000, 30_000}, {300_000, 200_000, 1}
    };

    /// How far ahead the clocks of janitors are, which take every unfinished file for one of a dead
    /// process.
    private static final long LATER_MILLIS = Duration.ofDays(30).toMillis();

    private static final byte UNUSED = 0x55;

    @TempDir Path folder;

    private final List<List<MemorySegment>> contents =
            IntStream.range(0, KEYS).mapToObj(i -> StoreDriver.block(i, shape(i))).toList();

    private static long[] shape(int i) {
        return SHAPES[i % SHAPES.length];
    }

    private static BlockKey key(int i) {
        return BlockKey.of("key " + i, i / 4);
    }

    private static void fill(List<MemorySegment> segments, byte value) {
        segments.forEach(segment -> segment.fill(value));
    }

    private static boolean holds(List<MemorySegment> segments, byte value) {
        return segments.stream()
                .allMatch(segment ->
                        segment.get(ValueLayout.JAVA_BYTE, 0) == value
                                && segment.asSlice(1)
                                                .mismatch(
                                                        segment.asSlice(0, segment.byteSize() - 1))
                                        < 0);
    }

    private final class Member {
        private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        private final BlockStore store;
        private volatile boolean closed;

        Member(int number, FleetKey secret, long seed) {
            if (number != 1) {
                calls.mostPerCall = 16L * AlignedStaging.ALIGNMENT;
            }
            store =
                    BlockStore.open(
                            StoreDriver.config(folder.resolve("root"))
                                    .withKey(secret)
                                    .withQuota(QUOTA, number == 0 ? 0.8 : 1, 1)
                                    .withMedium(
                                            Durability.values()[number],
                                            number == 2 ? DirectIo.ON : DirectIo.OFF),
                            StoreListener.NONE,
                            calls);
            calls.hook =
                    (_, count) -> {
                        delay(new SplittableRandom(seed + PROCESSES * count + number));
                        return 0;
                    };
        }

        void close() {
            closed = true;
            store.close();
        }
    }

    private static void delay(SplittableRandom random) {
        int much = random.nextInt(200);
        if (much < 40) {
            LockSupport.parkNanos(random.nextInt(much == 0 ? 50_000_000 : 1_000_000));
        }
    }

    /// Saves and loads one block at a time, in memory of its own.
    private final class Caller implements Callable<Boolean> {
        private final Member member;
        private final boolean closes;
        private final int steps;
        private final String name;
        private final SplittableRandom random;
        private final List<List<MemorySegment>> memory =
                IntStream.range(0, SHAPES.length)
                        .mapToObj(i -> StoreDriver.empty(shape(i)))
                        .toList();

        Caller(Member member, boolean closes, int steps, long seed) {
            this.member = member;
            this.closes = closes;
            this.steps = steps;
            this.name = "seed " + seed;
            this.random = new SplittableRandom(seed);
            memory.forEach(each -> fill(each, UNUSED));
        }

        @Override
        public Boolean call() throws Exception {
            for (int step = 0; step < steps; step++) {
                if (closes && step == steps / 2) {
                    member.close();
                }
                if (random.nextInt(20) == 0) {
                    new FolderScan(member.store.core())
                            .reapTemps(System.currentTimeMillis() + LATER_MILLIS);
                }
                int i = random.nextInt(KEYS);
                var block = memory.get(i % SHAPES.length);
                assertThat(holds(block, UNUSED))
                        .as("%s: nothing was written to memory after the result", name)
                        .isTrue();
                var result = random.nextBoolean() ? save(i, block) : load(i, block);
                if (result == null) {
                    return true;
                }
                fill(block, UNUSED);
                assertThat(
                                result instanceof BlockResult.Done
                                        || result.failedWith(ErrorCode.MISS)
                                        || result.failedWith(ErrorCode.TIMEOUT)
                                        || result.failedWith(ErrorCode.NO_SPACE)
                                        || result.failedWith(ErrorCode.STORAGE_IO))
                        .as("%s, block %d: %s", name, i, result)
                        .isTrue();
            }
            return true;
        }

        private Deadline deadline() {
            return Deadline.in(
                    random.nextInt(3) == 0
                            ? StoreDriver.PATIENCE
                            : Duration.ofMillis(random.nextInt(1, 60)));
        }

        /// Null when the store was closed.
        private @Nullable BlockResult save(int i, List<MemorySegment> block) throws Exception {
            for (int part = 0; part < block.size(); part++) {
                block.get(part).copyFrom(contents.get(i).get(part));
            }
            var done = new CompletableFuture<BlockResult>();
            boolean taken =
                    member.store.save(
                            key(i), block, deadline(), (_, result) -> done.complete(result), 0);
            return result(taken, done);
        }

        private @Nullable BlockResult load(int i, List<MemorySegment> block) throws Exception {
            var done = new CompletableFuture<BlockResult>();
            boolean taken =
                    member.store.load(
                            key(i), block, deadline(), (_, result) -> done.complete(result), 0);
            var result = result(taken, done);
            if (result == BlockResult.Done.LOADED) {
                assertThat(StoreDriver.same(block, contents.get(i)))
                        .as("%s: bytes of block %d", name, i)
                        .isTrue();
            }
            return result;
        }

        private @Nullable BlockResult result(boolean taken, CompletableFuture<BlockResult> done)
                throws Exception {
            if (taken) {
                return done.get(2 * StoreDriver.PATIENCE.toSeconds(), TimeUnit.SECONDS);
            }
            assertThat(member.closed).isTrue();
            return null;
        }
    }

    @Test
    @Timeout(600)
    void whatIsLoadedIsWhatWasSavedHoweverLongFileCallsTake() throws Exception {
        for (var secret : secrets()) {
            round(secret, System.nanoTime(), 60);
        }
    }

    @Test
    @Tag("soak")
    @Timeout(3600)
    void whatIsLoadedIsWhatWasSavedForLong() throws Exception {
        for (int i = 0; i < Integer.getInteger("kvferry.soak.seeds", 50); i++) {
            for (var secret : secrets()) {
                round(secret, System.nanoTime(), 400);
            }
        }
    }

    private List<FleetKey> secrets() throws IOException {
        var file = Files.writeString(folder.resolve("secret"), "the secret of a fleet");
        return List.of(FleetKey.NONE, FleetKey.of(FleetSecret.read(file)));
    }

    private void round(FleetKey secret, long seed, int steps) throws Exception {
        var members = new ArrayList<Member>();
        try (var pool = Executors.newFixedThreadPool(PROCESSES * CALLERS)) {
            var callers = new ArrayList<Caller>();
            for (int i = 0; i < PROCESSES * CALLERS; i++) {
                if (i < PROCESSES) {
                    members.add(new Member(i, secret, seed));
                }
                boolean closes = i == PROCESSES * CALLERS - 1;
                callers.add(new Caller(members.get(i % PROCESSES), closes, steps, seed + i));
            }
            for (var end : pool.invokeAll(callers)) {
                end.get();
            }
        } finally {
            members.forEach(Member::close);
        }
        for (var member : members) {
            assertThat(member.store.stats().corrupt()).as("seed %d", seed).isZero();
            StoreDriver.assertReservesNothing(member.store);
        }
        checkFolder(secret);
    }

    /// Whole blocks and nothing else.
    private void checkFolder(FleetKey secret) {
        var config = StoreDriver.config(folder.resolve("root")).withKey(secret);
        assertThat(StoreDriver.temps(config)).isEmpty();
        try (var store = BlockStore.open(config, StoreListener.NONE, FileCalls.ofPlatform())) {
            var driver = new StoreDriver(store);
            for (int i = 0; i < KEYS; i++) {
                var block = StoreDriver.empty(shape(i));
                var result = driver.load(key(i), block);
                assertThat(result == BlockResult.Done.LOADED || result.failedWith(ErrorCode.MISS))
                        .as("block %d: %s", i, result)
                        .isTrue();
                assertThat(
                                result != BlockResult.Done.LOADED
                                        || StoreDriver.same(block, contents.get(i)))
                        .isTrue();
            }
        }
    }
}
