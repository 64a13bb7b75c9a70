// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.staging;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.StagingPool;

import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

@SuppressWarnings("NullAway") // look-ups of keys that the test put there
class BuddyStagingPoolTest {
    private static final int PAGE = 4096;

    private static void refused(ErrorCode code, ThrowingCallable call) {
        assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

    @Test
    @DisplayName("B6 a full pool says who holds it, and stays as it is")
    void saysWhoHoldsIt() {
        try (var pool = new BuddyStagingPool(4 * PAGE)) {
            long mine = pool.allocate("mine", 3 * PAGE);
            assertThat(pool.available()).isZero();
            assertThatThrownBy(() -> pool.allocate("other", 1))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.NO_MEMORY))
                    .hasMessageContaining("mine=16384");
            pool.free(mine);
            assertThat(pool.available()).isEqualTo(4 * PAGE);
        }
    }

    @Test
    @DisplayName("B10 a buffer that is over is refused, also when its memory is another's by now")
    void refusesBuffersThatAreOver() {
        try (var pool = new BuddyStagingPool(2 * PAGE)) {
            long first = pool.allocate("a", PAGE);
            pool.free(first);
            long second = pool.allocate("b", PAGE);
            assertThat(pool.offset(second)).isZero();
            for (long over : new long[] {first, second + 1, 0, -1, Long.MAX_VALUE, 77L << 32}) {
                refused(ErrorCode.INVALID_REQUEST, () -> pool.free(over));
                refused(ErrorCode.INVALID_REQUEST, () -> pool.offset(over));
                refused(ErrorCode.INVALID_REQUEST, () -> pool.unpin(over));
                assertThat(pool.pin(over)).isFalse();
            }
            refused(ErrorCode.INVALID_REQUEST, () -> pool.unpin(second));
            assertThat(pool.held()).isEqualTo(Map.of("b", (long) PAGE));
            pool.free(second);
        }
    }

    @Test
    @DisplayName("B11 what is written to a buffer is read back, and nothing beyond it can be")
    void holdsBytes() {
        try (var pool = new BuddyStagingPool(1 << 20)) {
            for (int bytes : new int[] {1, 2, 7, 4095, 4096, 4097, 12_345, 65_536}) {
                long buffer = pool.allocate("a", bytes);
                var data = new byte[bytes];
                new SplittableRandom(bytes).nextBytes(data);
                var segment = pool.segment(buffer);
                MemorySegment.copy(data, 0, segment, ValueLayout.JAVA_BYTE, 0, bytes);
                assertThat(segment.asSlice(0, bytes).toArray(ValueLayout.JAVA_BYTE))
                        .isEqualTo(data);
                assertThat(segment.byteSize()).isEqualTo(size(pool, buffer));
                assertThat(segment.address())
                        .isEqualTo(pool.range().segment().address() + pool.offset(buffer));
                assertThatThrownBy(() -> segment.asSlice(0, size(pool, buffer) + 1))
                        .isInstanceOf(IndexOutOfBoundsException.class);
                pool.free(buffer);
            }
        }
    }

    @Test
    @DisplayName("B12 the oldest evictable buffer goes first, a pinned one never")
    void evictsTheOldest() {
        try (var pool = new BuddyStagingPool(4 * PAGE)) {
            var buffers = new ArrayList<Long>();
            for (int i = 0; i < 4; i++) {
                buffers.add(pool.allocateEvictable("cache", PAGE));
            }
            assertThat(pool.pin(buffers.get(0))).isTrue();
            long one = pool.allocate("save", PAGE);
            assertThat(pool.pin(buffers.get(1))).as("the oldest that is not pinned").isFalse();
            assertThat(pool.pin(buffers.get(2))).isTrue();
            assertThat(pool.pin(buffers.get(3))).isTrue();

            refused(ErrorCode.NO_MEMORY, () -> pool.allocate("save", PAGE));
            assertThat(pool.held()).isEqualTo(Map.of("cache", 3L * PAGE, "save", (long) PAGE));

            pool.unpin(buffers.get(3));
            refused(ErrorCode.NO_MEMORY, () -> pool.allocate("save", 2 * PAGE));
            assertThat(pool.pin(buffers.get(3))).as("in vain, so nothing is evicted").isTrue();
            pool.unpin(buffers.get(3));
            pool.unpin(buffers.get(2));
            long two = pool.allocate("save", 2 * PAGE);
            assertThat(pool.pin(buffers.get(2))).isFalse();
            assertThat(pool.pin(buffers.get(3))).isFalse();
            pool.unpin(buffers.get(0));
            pool.free(buffers.get(0));
            pool.free(one);
            pool.free(two);
            assertThat(pool.available()).isEqualTo(pool.capacity());
        }
    }

    @Test
    @DisplayName("a pinned buffer keeps its place until the last pin ends, whoever frees it")
    void pinsKeepAFreedBuffer() {
        try (var pool = new BuddyStagingPool(PAGE)) {
            long buffer = pool.allocate("a", PAGE);
            pool.pin(buffer);
            pool.pin(buffer);
            pool.free(buffer);
            refused(ErrorCode.INVALID_REQUEST, () -> pool.free(buffer));
            assertThat(pool.pin(buffer)).as("no new pins").isFalse();
            pool.unpin(buffer);
            refused(ErrorCode.NO_MEMORY, () -> pool.allocate("b", 1));
            pool.unpin(buffer);
            pool.free(pool.allocate("b", 1));
        }
    }

    @Test
    @DisplayName("a quarantined buffer comes back when nothing touches it, however that ended")
    void quarantineEnds() {
        try (var pool = new BuddyStagingPool(2 * PAGE)) {
            long held = pool.allocate("a", PAGE);
            long evictable = pool.allocateEvictable("b", PAGE);
            var good = new CompletableFuture<Void>();
            var bad = new CompletableFuture<Void>();
            pool.quarantine(held, good);
            pool.quarantine(evictable, bad);
            refused(ErrorCode.INVALID_REQUEST, () -> pool.free(held));
            refused(ErrorCode.NO_MEMORY, () -> pool.allocate("c", 1));
            good.complete(null);
            assertThat(pool.available()).isEqualTo(PAGE);
            bad.completeExceptionally(new IllegalStateException("the transfer failed"));
            assertThat(pool.available()).isEqualTo(2 * PAGE);
            pool.quarantine(pool.allocate("a", PAGE), CompletableFuture.completedFuture(null));
            assertThat(pool.available()).isEqualTo(2 * PAGE);
        }
    }

    @Test
    @DisplayName("B15 what is registered is the rounded length, to the byte")
    void registersTheRoundedLength() {
        try (var pool = new BuddyStagingPool(100_000)) {
            assertThat(pool.capacity()).isEqualTo(131_072);
            assertThat(pool.range().length()).isEqualTo(131_072);
            assertThat(pool.range().segment().address() % PAGE).isZero();
            long last = 0;
            for (int i = 0; i < 32; i++) {
                last = pool.allocate("a", PAGE);
            }
            assertThat(pool.offset(last) + size(pool, last)).isEqualTo(pool.range().length());
            assertThat(pool.held()).containsEntry("a", 131_072L);
        }
    }

    @Test
    @DisplayName("closing keeps the memory until the last buffer is back, and tells who has it")
    void closesWhenTheLastBufferIsBack() {
        var pool = new BuddyStagingPool(4 * PAGE);
        long leaked = pool.allocate("leaky", PAGE);
        long moving = pool.allocate("slow", PAGE);
        var segment = pool.segment(moving);
        var quiet = new CompletableFuture<Void>();
        pool.quarantine(moving, quiet);
        pool.close();

        assertThat(pool.held()).isEqualTo(Map.of("leaky", (long) PAGE, "slow", (long) PAGE));
        refused(ErrorCode.CLOSED, () -> pool.allocate("late", 1));
        refused(ErrorCode.CLOSED, pool::range);
        segment.fill((byte) 1); // the transfer goes on
        quiet.complete(null);
        segment.fill((byte) 2);
        pool.free(leaked);
        assertThat(segment.scope().isAlive()).isFalse();
        pool.close();
    }

    /// What a buffer ought to be.
    private static final class Expected {
        final boolean evictable;
        final byte fill;
        int pins;
        boolean given;

        Expected(boolean evictable, byte fill) {
            this.evictable = evictable;
            this.fill = fill;
        }
    }

    /// Random calls compared with a model: no overlap, no lost byte, no early reuse.
    @Test
    @DisplayName("B13 whatever is called in whatever order, no byte is another's")
    void agreesWithAModel() {
        for (long seed = 1; seed <= 40; seed++) {
            new Model(seed).run(2_000);
        }
    }

    private static final class Model {
        private final SplittableRandom random;
        private final long seed;
        private final BuddyStagingPool pool = new BuddyStagingPool(64 * 64, 64);
        private final Map<Long, Expected> buffers = new HashMap<>();
        private final Map<Long, CompletableFuture<Void>> quarantined = new HashMap<>();
        private final Map<Long, long[]> places = new HashMap<>();
        private final List<Long> over = new ArrayList<>();

        Model(long seed) {
            this.seed = seed;
            this.random = new SplittableRandom(seed);
        }

        void run(int steps) {
            for (int i = 0; i < steps; i++) {
                step();
                check();
            }
            for (long buffer : List.copyOf(buffers.keySet())) {
                var one = buffers.get(buffer);
                if (!one.given) {
                    give(buffer);
                }
                while (one.pins > 0) {
                    unpin(buffer);
                }
            }
            List.copyOf(quarantined.keySet()).forEach(this::quiet);
            check();
            assertThat(pool.available()).as("seed %d", seed).isEqualTo(pool.capacity());
            pool.close();
            assertThat(pool.held()).isEmpty();
        }

        private Long any(Map<Long, ?> map) {
            var keys = map.keySet().stream().sorted().toList();
            return keys.isEmpty() ? null : keys.get(random.nextInt(keys.size()));
        }

        private void step() {
            var buffer = any(buffers);
            switch (buffer == null ? 0 : random.nextInt(9)) {
                case 0, 1, 2 -> allocate(random.nextBoolean());
                case 3 -> {
                    boolean good = pool.pin(buffer);
                    assertThat(good).isEqualTo(!buffers.get(buffer).given);
                    buffers.get(buffer).pins += good ? 1 : 0;
                }
                case 4, 5 -> {
                    if (buffers.get(buffer).pins > 0) {
                        unpin(buffer);
                    } else {
                        refused(ErrorCode.INVALID_REQUEST, () -> pool.unpin(buffer));
                    }
                }
                case 6 -> {
                    if (buffers.get(buffer).given) {
                        refused(ErrorCode.INVALID_REQUEST, () -> pool.free(buffer));
                    } else {
                        give(buffer);
                    }
                }
                case 7 -> {
                    if (!buffers.get(buffer).given && !quarantined.containsKey(buffer)) {
                        var quiet = new CompletableFuture<Void>();
                        pool.quarantine(buffer, quiet);
                        quarantined.put(buffer, quiet);
                        buffers.get(buffer).given = true;
                    }
                }
                default -> {
                    if (any(quarantined) instanceof Long one) {
                        quiet(one);
                    } else if (!over.isEmpty()) {
                        long dead = over.get(random.nextInt(over.size()));
                        refused(ErrorCode.INVALID_REQUEST, () -> pool.free(dead));
                        assertThat(pool.pin(dead)).isFalse();
                    }
                }
            }
        }

        private void allocate(boolean evictable) {
            long bytes = 1 + random.nextInt(random.nextInt(8) == 0 ? 4096 : 300);
            long buffer;
            try {
                buffer = evictable ? pool.allocateEvictable("m", bytes) : pool.allocate("m", bytes);
            } catch (KvFerryException e) {
                assertThat(e.code()).isEqualTo(ErrorCode.NO_MEMORY);
                forgetEvicted(false);
                return;
            }
            assertThat(buffers).doesNotContainKey(buffer);
            forgetEvicted(true);
            byte fill = (byte) random.nextInt(256);
            pool.segment(buffer).fill(fill);
            buffers.put(buffer, new Expected(evictable, fill));
            places.put(buffer, new long[] {pool.offset(buffer), size(pool, buffer)});
            assertThat(size(pool, buffer)).isGreaterThanOrEqualTo(bytes);
            assertThat(pool.offset(buffer) % size(pool, buffer)).isZero();
        }

        /// Only what nobody had pinned or given back may be gone, and only for an allocation.
        private void forgetEvicted(boolean mayBe) {
            for (long buffer : List.copyOf(buffers.keySet())) {
                var one = buffers.get(buffer);
                if (one.given || !one.evictable || one.pins > 0) {
                    continue;
                }
                if (pool.pin(buffer)) {
                    pool.unpin(buffer);
                } else {
                    assertThat(mayBe).as("seed %d: evicted in vain", seed).isTrue();
                    end(buffer);
                }
            }
        }

        private void give(long buffer) {
            pool.free(buffer);
            buffers.get(buffer).given = true;
            endIfDone(buffer);
        }

        private void unpin(long buffer) {
            pool.unpin(buffer);
            buffers.get(buffer).pins--;
            endIfDone(buffer);
        }

        private void quiet(long buffer) {
            quarantined.remove(buffer).complete(null);
            endIfDone(buffer);
        }

        private void endIfDone(long buffer) {
            var one = buffers.get(buffer);
            if (one.given && one.pins == 0 && !quarantined.containsKey(buffer)) {
                end(buffer);
            }
        }

        private void end(long buffer) {
            buffers.remove(buffer);
            places.remove(buffer);
            over.add(buffer);
        }

        private void check() {
            long used = 0;
            var whole = pool.range().segment();
            for (var entry : places.entrySet()) {
                long at = entry.getValue()[0];
                long size = entry.getValue()[1];
                used += size;
                byte fill = buffers.get(entry.getKey()).fill;
                assertThat(whole.get(ValueLayout.JAVA_BYTE, at)).isEqualTo(fill);
                assertThat(whole.get(ValueLayout.JAVA_BYTE, at + size - 1)).isEqualTo(fill);
                assertThat(whole.get(ValueLayout.JAVA_BYTE, at + size / 2)).isEqualTo(fill);
            }
            assertThat(pool.available()).as("seed %d", seed).isEqualTo(pool.capacity() - used);
        }
    }

    @Test
    @DisplayName("B13 sixteen threads share a pool")
    void threadsShareAPool() throws Exception {
        share(5_000);
    }

    @Test
    @Tag("soak")
    @DisplayName("B13 sixteen threads share a pool, 100,000 times each")
    void threadsShareAPoolForLong() throws Exception {
        share(100_000);
    }

    private static void share(int times) throws Exception {
        var pool = new BuddyStagingPool(1 << 20);
        try (var threads = Executors.newFixedThreadPool(16)) {
            var work = new ArrayList<Future<?>>();
            for (int t = 0; t < 16; t++) {
                int thread = t;
                work.add(threads.submit(() -> useAlone(pool, thread, times)));
            }
            for (var one : work) {
                one.get(5, TimeUnit.MINUTES);
            }
        }
        assertThat(pool.held()).isEmpty();
        assertThat(pool.available()).isEqualTo(pool.capacity());
        pool.free(pool.allocate("all", pool.capacity())); // merged
        pool.close();
    }

    /// Each buffer holds its thread's mark from its allocation until it is given back.
    private static void useAlone(BuddyStagingPool pool, int thread, int times) {
        var random = new SplittableRandom(thread);
        var held = new long[4];
        var whole = pool.range().segment();
        for (int i = 0; i < times; i++) {
            int slot = random.nextInt(held.length);
            if (held[slot] != 0) {
                long at = pool.offset(held[slot]);
                long mark = whole.get(ValueLayout.JAVA_LONG, at);
                long end = whole.get(ValueLayout.JAVA_LONG, at + size(pool, held[slot]) - 8);
                if (mark != held[slot] || end != held[slot]) {
                    throw new AssertionError("another's bytes in a buffer of thread " + thread);
                }
                if (random.nextBoolean()) {
                    pool.pin(held[slot]);
                    pool.free(held[slot]);
                    pool.unpin(held[slot]);
                } else {
                    pool.free(held[slot]);
                }
                held[slot] = 0;
            } else {
                try {
                    held[slot] = pool.allocate("t" + thread, 1 + random.nextInt(40_000));
                } catch (KvFerryException e) {
                    continue; // full
                }
                long at = pool.offset(held[slot]);
                whole.set(ValueLayout.JAVA_LONG, at, held[slot]);
                whole.set(ValueLayout.JAVA_LONG, at + size(pool, held[slot]) - 8, held[slot]);
            }
        }
        for (long buffer : held) {
            if (buffer != 0) {
                pool.free(buffer);
            }
        }
    }

    private static long size(StagingPool pool, long buffer) {
        return pool.segment(buffer).byteSize();
    }
}
