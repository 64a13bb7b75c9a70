// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.stream.IntStream;

/// What is evicted and what is not, on a clock that the test moves. The store has room for 100
/// objects.
class EvictionTest {
    private static final long SIZE = 64;
    private static final int ROOM = 100;

    private final SteppedStore stepped = new SteppedStore();
    private final EmbeddedStore store = stepped.store;
    private final EmbeddedClient user = store.client(StoreContract.ONE);
    private final Arena arena = Arena.ofShared();
    private final MemorySegment value = arena.allocate(SIZE);

    EvictionTest() {
        store.mount("a", ROOM * SIZE);
    }

    @AfterEach
    void close() {
        stepped.close();
        arena.close();
    }

    private int put(String key, PutOptions options, @Nullable String group) {
        stepped.pass(Duration.ofMillis(1)); // so that all differ in age
        var results = new int[1];
        user.put(new StoreBatch().add(key, group).buffer(value), options, results);
        return results[0];
    }

    private int put(String key) {
        return put(key, PutOptions.DEFAULT, null);
    }

    private void fill(int from, int to) {
        for (int i = from; i < to; i++) {
            assertThat(put("k" + i)).isZero();
        }
    }

    private List<Integer> left(int count) {
        var there = new HashSet<>(store.keys(StoreContract.ONE)); // is no use, unlike a lookup
        return IntStream.range(0, count).filter(i -> there.contains("k" + i)).boxed().toList();
    }

    private void lease(int from, int to) {
        for (int i = from; i < to; i++) {
            stepped.pass(Duration.ofNanos(1));
            user.exists(List.of("k" + i), true, new int[1]);
        }
    }

    private static List<Integer> range(int from, int to) {
        return IntStream.range(from, to).boxed().toList();
    }

    @Test
    void nothingIsEvictedUpToTheWatermark() {
        fill(0, 90);
        assertThat(store.tick()).isZero();
        fill(90, 91);
        assertThat(store.tick()).as("ceil(91 * (0.01 + 0.05))").isEqualTo(6);
        assertThat(left(91)).isEqualTo(range(6, 91));
    }

    @Test
    void aFullStoreLosesFifteenOfAHundred() {
        fill(0, 100);
        assertThat(store.tick()).isEqualTo(15);
        assertThat(left(100)).isEqualTo(range(15, 100));
    }

    @Test
    void aPutWithoutRoomMakesTheNextTickEvict() {
        // 90 of 100 are no reason; a hole in them that is too small is.
        fill(0, 90);
        var results = new int[1];
        user.put(
                new StoreBatch().add("big").buffer(arena.allocate(11 * SIZE)),
                PutOptions.DEFAULT,
                results);
        assertThat(results[0]).isEqualTo(StoreCode.NO_AVAILABLE_HANDLE.number());
        assertThat(user.noRoom()).contains("the next eviction makes room");
        assertThat(store.tick()).isEqualTo(5);
        assertThat(store.tick()).as("the wish is granted").isZero();
    }

    @Test
    void leasedObjectsCountButStay() {
        fill(0, 100);
        lease(0, 90);
        assertThat(store.tick()).as("15 are wanted, 10 can go").isEqualTo(10);
        assertThat(left(100)).isEqualTo(range(0, 90));
        stepped.pass(Duration.ofSeconds(10));
        assertThat(put("more")).isZero();
        assertThat(store.tick()).as("ceil(91 * 0.06)").isEqualTo(6);
        assertThat(left(90)).hasSize(84);
    }

    @Test
    void whereAllIsLeasedNothingGoesAndPutsSayWhy() {
        fill(0, 100);
        lease(0, 100);
        assertThat(put("more")).isEqualTo(StoreCode.NO_AVAILABLE_HANDLE.number());
        assertThat(store.tick()).isZero();
        assertThat(user.noRoom()).contains("leases keep most of it");
        var usage = store.usage();
        assertThat(usage.leased()).isEqualTo(100 * SIZE);
        assertThat(usage.evictable()).isZero();
        stepped.pass(Duration.ofSeconds(10));
        assertThat(store.usage().evictable()).isEqualTo(100 * SIZE);
        assertThat(store.tick()).isEqualTo(15);
        assertThat(put("more")).isZero();
    }

    @Test
    void aReadMakesAnObjectTheMostRecent() {
        fill(0, 100);
        lease(0, 10);
        stepped.pass(Duration.ofSeconds(11));
        assertThat(store.tick()).isEqualTo(15);
        var expected = new ArrayList<>(range(0, 10));
        expected.addAll(range(25, 100));
        assertThat(left(100)).isEqualTo(expected);
    }

    @Test
    void aLookupWithoutLeaseCountsAsUseAndKeepsNothing() {
        fill(0, 100);
        stepped.pass(Duration.ofMillis(1));
        var results = new int[1];
        for (int i = 0; i < 10; i++) {
            stepped.pass(Duration.ofNanos(1));
            user.exists(List.of("k" + i), false, results);
        }
        assertThat(store.usage().leased()).isZero();
        assertThat(store.tick()).isEqualTo(15);
        assertThat(left(100)).isEqualTo(concat(0, 10, 25, 100));
        for (int i = 10; i < 100; i++) {
            user.remove("k" + i, true);
        }
        assertThat(user.remove("k0", false)).isZero();
    }

    @Test
    void softPinsGoInTheSecondPass() {
        for (int i = 0; i < 95; i++) {
            put("k" + i, PutOptions.DEFAULT.softPinned(Duration.ofMinutes(30)), null);
        }
        fill(95, 100);
        assertThat(store.usage().softPinned()).isEqualTo(95 * SIZE);
        // Pass 1 takes the 5 plain ones of 15 wanted, pass 2 makes up ceil(100 * 0.10) in all.
        assertThat(store.tick()).isEqualTo(10);
        assertThat(left(100)).isEqualTo(range(5, 95));
    }

    @Test
    void softPinsEnd() {
        for (int i = 0; i < 50; i++) {
            put("k" + i, PutOptions.DEFAULT.softPinned(Duration.ofMinutes(30)), null);
        }
        fill(50, 100);
        assertThat(store.tick()).isEqualTo(15);
        assertThat(left(100)).as("pinned ones are older").isEqualTo(concat(0, 50, 65, 100));
        stepped.pass(Duration.ofMinutes(31));
        for (int i = 0; i < 10; i++) {
            put("more" + i);
        }
        assertThat(store.tick()).as("ceil(95 * 0.10)").isEqualTo(10);
        assertThat(left(100)).isEqualTo(concat(10, 50, 65, 100));
    }

    private static List<Integer> concat(int from, int to, int from2, int to2) {
        var both = new ArrayList<>(range(from, to));
        both.addAll(range(from2, to2));
        return both;
    }

    @Test
    void softPinsStayWhereTheStoreIsToldSo() {
        try (var strict = new SteppedStore(config -> config.withEviction(0.9, 0.05, false))) {
            strict.store.mount("a", ROOM * SIZE);
            var client = strict.store.client(StoreContract.ONE);
            for (int i = 0; i < 100; i++) {
                client.put(
                        new StoreBatch().add("k" + i).buffer(value),
                        PutOptions.DEFAULT.softPinned(Duration.ofMinutes(1)),
                        new int[1]);
            }
            assertThat(strict.store.tick()).isZero();
            strict.pass(Duration.ofMinutes(1));
            assertThat(strict.store.tick()).isGreaterThanOrEqualTo(15);
        }
    }

    @Test
    void hardPinsStayAndDoNotCount() {
        for (int i = 0; i < 60; i++) {
            put("k" + i, PutOptions.DEFAULT.hardPinned(), null);
        }
        fill(60, 100);
        assertThat(store.usage().hardPinned()).isEqualTo(60 * SIZE);
        assertThat(store.tick()).as("ceil(40 * 0.15)").isEqualTo(6);
        assertThat(left(100)).isEqualTo(concat(0, 60, 66, 100));
        assertThat(user.remove("k0", false)).isZero();
    }

    @Test
    void theSameAgeGoesTogether() {
        var batch = new StoreBatch();
        for (int i = 0; i < 100; i++) {
            batch.add("k" + i).buffer(value);
        }
        user.put(batch, PutOptions.DEFAULT, new int[100]);
        assertThat(store.tick()).isEqualTo(100);
    }

    @Test
    void aGroupGoesAsAWholeOnceNoMemberIsLeased() {
        for (int i = 0; i < 100; i++) {
            put("k" + i, PutOptions.DEFAULT, "g" + i / 20);
        }
        lease(5, 6);
        assertThat(store.tick()).as("the oldest group is leased by one member").isEqualTo(20);
        assertThat(left(100)).isEqualTo(concat(0, 20, 40, 100));
        assertThat(user.remove("k7", false))
                .as("its other members are leased too")
                .isEqualTo(StoreCode.OBJECT_HAS_LEASE.number());
    }

    @Test
    void pinnedMembersStayBehind() {
        for (int i = 0; i < 100; i++) {
            var options = i == 3 ? PutOptions.DEFAULT.hardPinned() : PutOptions.DEFAULT;
            put("k" + i, options, i < 20 ? "g" : null);
        }
        assertThat(store.tick()).isEqualTo(19);
        assertThat(left(100)).isEqualTo(concat(3, 4, 20, 100));
    }

    @Test
    void whatIsBeingReadIsNeitherFreedNorLost() {
        // The copy is the pin: an object that is removed by force meanwhile keeps its bytes.
        fill(0, 1);
        var state = new BatchState();
        var reads = new ObjectReads(store, user);
        assertThat(reads.pin("k0", state, 0)).isZero();
        StoredObject pinned = state.takePinned(0);
        assertThat(user.remove("k0", true)).isZero();
        assertThat(store.usedBytes()).isEqualTo(SIZE);
        assertThat(put("k0")).as("another object of that key").isZero();
        assertThat(store.usedBytes()).isEqualTo(2 * SIZE);
        reads.unpin(pinned);
        assertThat(store.usedBytes()).isEqualTo(SIZE);
    }

    @Test
    void countsWhatItEvicts() {
        fill(0, 100);
        store.tick();
        assertThat(store.counters())
                .containsEntry("master_evicted_key_count", 15L)
                .containsEntry("master_evicted_size_bytes", 15 * SIZE)
                .containsEntry("master_attempted_evictions_total", 1L)
                .containsEntry("master_successful_evictions_total", 1L);
    }

    @Test
    void anObjectThatFitsNowhereCostsNoOther() {
        fill(0, 50);
        try (var large = Arena.ofConfined()) {
            var batch = new StoreBatch().add("large").buffer(large.allocate((ROOM + 1) * SIZE));
            for (int i = 0; i < 20; i++) {
                var results = new int[1];
                user.put(batch, PutOptions.DEFAULT, results);
                assertThat(results[0]).isEqualTo(StoreCode.NO_AVAILABLE_HANDLE.number());
                assertThat(store.tick()).isZero();
            }
        }
        assertThat(store.keyCount()).isEqualTo(50);
    }
}
