// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.cluster.StoreDouble.Count;
import io.kvferry.backend.mooncake.store.cluster.StoreDouble.Knob;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.SplittableRandom;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicInteger;

/// What the client of a cluster makes of a library that fails, lies or hangs.
class ClusterStoreTest {
    private static final StoreIdentity ONE = new StoreIdentity("", "model", "bf16-16");
    private static final Duration SHORT = Duration.ofMillis(200);

    private final StoreDouble mooncake = StoreDouble.load();
    private final Arena arena = Arena.ofShared();
    private final List<ClusterStore> opened = new ArrayList<>();
    private long handles;

    @BeforeEach
    void countHandles() {
        handles = mooncake.count(Count.HANDLES);
    }

    @AfterEach
    void close() {
        opened.forEach(ClusterStore::close);
        mooncake.assertClean();
        mooncake.reset();
        arena.close();
    }

    private ClusterStore open(ClusterConfig config) {
        var store = ClusterStore.open(config, ONE);
        opened.add(store);
        return store;
    }

    private ClusterStore open() {
        return open(mooncake.config());
    }

    private ClusterStore impatient() {
        var store = open(mooncake.config().withLimits(SHORT, SHORT));
        StoreDouble.await(() -> store.healthCheck() == 0, "not connected");
        return store;
    }

    private MemorySegment bytes(long seed, long length) {
        MemorySegment memory = arena.allocate(length);
        var random = new SplittableRandom(seed);
        for (long i = 0; i < length; i++) {
            memory.set(ValueLayout.JAVA_BYTE, i, (byte) random.nextInt());
        }
        return memory;
    }

    private static int put(ClusterStore store, String key, MemorySegment value) {
        var results = new int[1];
        store.put(new StoreBatch().add(key).buffer(value), PutOptions.DEFAULT, results);
        return results[0];
    }

    private static long get(ClusterStore store, String key, MemorySegment value) {
        var results = new long[1];
        store.get(new StoreBatch().add(key).buffer(value), results);
        return results[0];
    }

    private static int exists(ClusterStore store, String key) {
        var results = new int[1];
        store.exists(List.of(key), true, results);
        return results[0];
    }

    @ParameterizedTest
    @ValueSource(
            ints = {
                -1, -10, -101, -102, -200, -300, -400, -500, -600, -700, -703, -704, -706, -707,
                -800, -801, -900, -901, -1000, -1010
            })
    void eachCodeOfTheLibraryComesBack(int code) {
        var store = open();
        var value = bytes(1, 100);
        for (Knob knob : List.of(Knob.FAIL_ITEM, Knob.FAIL_CALL)) {
            mooncake.set(knob, code);
            assertThat(put(store, "k", value)).isEqualTo(code);
            assertThat(exists(store, "k")).isEqualTo(code);
            assertThat(get(store, "k", arena.allocate(100))).isEqualTo(code);
            if (knob == Knob.FAIL_CALL) {
                assertThat(store.size("k")).isEqualTo(code);
                assertThat(store.remove("k", true)).isEqualTo(code);
                assertThat(store.removeByRegex("k.*", true)).isEqualTo(code);
                assertThat(store.removeAll(true)).isEqualTo(code);
            }
            mooncake.set(knob, 0);
        }
        assertThat(put(store, "k", value)).isZero();
    }

    @Test
    void whatIsThereAlreadyCountsAsStored() {
        mooncake.set(Knob.FAIL_ITEM, StoreCode.OBJECT_ALREADY_EXISTS.number());
        assertThat(put(open(), "k", bytes(1, 100))).isZero();
    }

    /// A library that answers 0 for the call and nothing for its keys has stored and read nothing.
    @Test
    void resultsThatAreNotWrittenAreErrors() {
        var store = open();
        var value = bytes(1, 100);
        assertThat(put(store, "k", value)).isZero();
        assertThat(get(store, "k", arena.allocate(100))).isEqualTo(100);
        mooncake.set(Knob.UNWRITTEN, 1);
        int internal = StoreCode.INTERNAL.number();
        assertThat(put(store, "k2", value)).isEqualTo(internal);
        assertThat(get(store, "k", arena.allocate(100))).isEqualTo(internal);
        assertThat(exists(store, "k")).isEqualTo(internal);
    }

    @Test
    void aWrongBitIsReadAgainAndADamagedObjectGoes() {
        var store = open();
        var value = bytes(2, 5000);
        put(store, "k", value);
        var back = arena.allocate(5000);
        mooncake.set(Knob.FLIP, 1);
        assertThat(get(store, "k", back)).isEqualTo(5000);
        assertThat(back.mismatch(value)).isEqualTo(-1);
        mooncake.set(Knob.FLIP, 2);
        assertThat(get(store, "k", back)).isEqualTo(StoreCode.CHECKSUM_MISMATCH.number());
        assertThat(exists(store, "k")).as("a put would not replace it").isZero();
        assertThat(put(store, "k", value)).isZero();
        assertThat(get(store, "k", back)).isEqualTo(5000);
    }

    @Test
    void aShortReadIsNoHit() {
        var store = open();
        put(store, "k", bytes(3, 5000));
        for (int missing : List.of(1, 16, 4999, 5016)) {
            mooncake.set(Knob.SHORT_READ, missing);
            assertThat(get(store, "k", arena.allocate(5000)))
                    .isEqualTo(StoreCode.CHECKSUM_MISMATCH.number());
            mooncake.set(Knob.SHORT_READ, 0);
            assertThat(put(store, "k", bytes(3, 5000))).isZero();
        }
    }

    /// What memory holds after an eviction may be another object, whole and with a good checksum.
    @Test
    void theBytesOfAnotherObjectAreNoHit() {
        var store = open();
        var value = bytes(4, 3000);
        put(store, "k", value);
        put(store, "other", bytes(5, 3000));
        var back = arena.allocate(3000);
        mooncake.set(Knob.OTHER_OBJECT, 1);
        assertThat(get(store, "k", back)).isEqualTo(3000);
        assertThat(back.mismatch(value)).isEqualTo(-1);
        mooncake.set(Knob.OTHER_OBJECT, 2);
        assertThat(get(store, "k", back)).isEqualTo(StoreCode.CHECKSUM_MISMATCH.number());
    }

    @Test
    void callsThatHangEndInTimeoutsAndNobodyWaitsBehindThem() {
        var store = impatient();
        var value = bytes(6, 2000);
        StoreDouble.await(() -> put(store, "k", value) == 0, "a put on a busy machine");
        mooncake.set(Knob.HANG, 1);
        int timeout = StoreCode.RPC_TIMEOUT.number();
        var late = bytes(7, 2000);
        var copy = arena.allocate(2000).copyFrom(late);
        assertThat(put(store, "late", late)).isEqualTo(timeout);
        late.fill((byte) 0); // its memory is the caller's again
        var back = arena.allocate(2000);
        for (int i = 0; i < 8; i++) { // more than there are threads
            assertThat(get(store, "k", back)).isEqualTo(timeout);
            assertThat(exists(store, "k")).isEqualTo(timeout);
        }
        assertThat(store.size("k")).isEqualTo(timeout);
        assertThat(store.remove("k", true)).isEqualTo(timeout);
        mooncake.await(Count.HANGING, 6);
        mooncake.set(Knob.HANG, 0);
        mooncake.await(Count.HANGING, 0);
        assertThat(back.mismatch(arena.allocate(2000)))
                .as("a read that was given up writes nowhere")
                .isEqualTo(-1);
        StoreDouble.await(() -> get(store, "k", back) == 2000, "the threads do not come back");
        assertThat(back.mismatch(value)).isEqualTo(-1);
        StoreDouble.await(() -> exists(store, "late") >= 0, "the threads do not come back");
        if (get(store, "late", back) == 2000) {
            assertThat(back.mismatch(copy)).as("stored whole or not at all").isEqualTo(-1);
        }
    }

    /// Mooncake answers so when it has waited for a minute, and the transfer goes on.
    @Test
    void memoryOfATransferThatMayStillRunIsNotUsedAgain() throws InterruptedException {
        var store = open();
        var value = bytes(10, 3000);
        assertThat(put(store, "k", value)).isZero();
        for (int i = 0; i < 2; i++) {
            long before = stagingAddress();
            long left = CallMemory.leftBytes();
            mooncake.set(Knob.FAIL_ITEM, StoreCode.TRANSFER_FAIL.number());
            mooncake.set(Knob.HANG, 1);
            boolean get = i == 1;
            var answer = new long[1];
            var call =
                    Thread.ofPlatform()
                            .daemon()
                            .start(() ->
                                    answer[0] =
                                            get
                                                    ? get(store, "k", arena.allocate(3000))
                                                    : put(store, "other", value));
            mooncake.await(Count.HANGING, 1);
            long start = System.nanoTime();
            StoreDouble.await(
                    () -> System.nanoTime() - start > CallMemory.ENDED.toNanos(), "no time passes");
            mooncake.set(Knob.HANG, 0);
            assertThat(call.join(Duration.ofSeconds(55))).isTrue();
            assertThat(answer[0]).isEqualTo(StoreCode.TRANSFER_FAIL.number());
            mooncake.set(Knob.FAIL_ITEM, 0);
            assertThat(CallMemory.leftBytes() - left).isEqualTo(CallMemory.STAGING);
            var back = arena.allocate(3000);
            assertThat(get(store, "k", back)).isEqualTo(3000);
            assertThat(back.mismatch(value)).isEqualTo(-1);
            assertThat(stagingAddress()).isNotZero().isNotEqualTo(before);
        }
        store.close();
        mooncake.await(Count.HANDLES, handles);
    }

    /// Of the thread that is used next.
    private long stagingAddress() {
        var client = ClusterClient.use(mooncake.config());
        var limit = Deadline.in(Duration.ofSeconds(50));
        var thread = Objects.requireNonNull(client.moves().take(limit));
        try {
            return thread.memory().stagingAddress();
        } finally {
            client.moves().give(thread);
            client.release();
        }
    }

    /// A large value moves in pieces, and the call answers when one has failed.
    @Test
    void aLargeValueWhoseTransferFailedIsNotFreed() {
        var store = open();
        var large = bytes(11, CallMemory.STAGING + 5);
        assertThat(put(store, "k", large)).isZero();
        long left = CallMemory.leftBytes();
        mooncake.set(Knob.FAIL_CALL, StoreCode.TRANSFER_FAIL.number());
        assertThat(put(store, "other", large)).isEqualTo(StoreCode.TRANSFER_FAIL.number());
        mooncake.set(Knob.FAIL_CALL, 0);
        long needed = large.byteSize() + ValueTrailer.BYTES;
        assertThat(CallMemory.leftBytes() - left).isEqualTo(needed);
        var back = arena.allocate(large.byteSize());
        assertThat(get(store, "k", back)).isEqualTo(large.byteSize());
        assertThat(back.mismatch(large)).isEqualTo(-1);
        assertThat(CallMemory.leftBytes() - left).isEqualTo(needed);
    }

    /// A server still answers requests while the hooks of the JVM's end run.
    @Test
    void theEndWaitsWhileCallsCome() {
        var store = open();
        var client = ClusterClient.use(mooncake.config());
        var hour = Duration.ofHours(1);
        client.awaitQuiet(hour, Deadline.in(hour)); // no call has come
        assertThat(exists(store, "k")).isZero();
        assertThat(client.queries().usedWithin(hour)).isTrue();
        assertThat(client.queries().usedWithin(Duration.ZERO)).isFalse();
        assertThat(client.moves().usedWithin(hour)).isFalse();
        var limit = Deadline.in(SHORT);
        client.awaitQuiet(hour, limit);
        assertThat(limit.passed()).isTrue();
        assertThat(exists(store, "k")).isZero();
        client.release();
        store.close();
        client.awaitQuiet(hour, Deadline.in(hour)); // it has ended
    }

    @Test
    void aCallerThatWaitsForALaneIsToldOfTheEnd() throws InterruptedException {
        var threads = new CallThreads(1, Thread.ofPlatform().daemon().factory());
        var hour = Deadline.in(Duration.ofHours(1));
        var thread = Objects.requireNonNull(threads.take(hour));
        var waiting = Thread.ofPlatform().daemon().start(() -> threads.take(hour));
        StoreDouble.await(
                () -> waiting.getState() == Thread.State.TIMED_WAITING, "it does not wait");
        assertThat(threads.drain(Deadline.in(Duration.ZERO))).isFalse();
        assertThat(waiting.join(Duration.ofSeconds(55))).isTrue();
        threads.give(thread);
        assertThat(threads.drain(hour)).isTrue();
        threads.free();
    }

    /// The thread that looks after the library would not come back.
    @Test
    void whatTheKeeperThrowsDoesNotEndIt() {
        var runs = new AtomicInteger();
        var pauses = new AtomicInteger();
        ClusterClient.persist(
                () -> {
                    switch (runs.incrementAndGet()) {
                        case 1 -> throw new OutOfMemoryError("by the test");
                        case 2 -> throw new IllegalStateException("by the test");
                        default -> {}
                    }
                },
                _ -> {
                    pauses.incrementAndGet();
                    return false;
                });
        assertThat(runs).hasValue(3);
        assertThat(pauses).hasValue(2);
        ClusterClient.persist(
                () -> {
                    throw new OutOfMemoryError("by the test");
                },
                _ -> pauses.incrementAndGet() == 4);
        assertThat(pauses).as("until there is nothing more to do").hasValue(4);
    }

    /// Refuses the threads from one on, whatever they are for.
    @ParameterizedTest
    @ValueSource(ints = {0, 1, 2, 5, 6})
    void aClientForWhichThereIsNoThreadIsNotOpenedAndTheNextOneIs(int had) throws Exception {
        var left = new AtomicInteger(had);
        var threads = new ArrayList<Thread>();
        ThreadFactory few =
                run -> {
                    if (left.getAndDecrement() <= 0) {
                        throw new OutOfMemoryError("no thread, says the test");
                    }
                    threads.add(new Thread(run));
                    return threads.getLast();
                };
        assertThatThrownBy(() -> ClusterClient.use(mooncake.config(), _ -> few))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.NO_MEMORY));
        assertThat(threads).hasSize(had);
        for (var thread : threads) {
            assertThat(thread.join(Duration.ofSeconds(50))).isTrue();
        }
        var store = open();
        StoreDouble.await(() -> store.healthCheck() == 0, "not connected");
        assertThat(put(store, "k", bytes(1, 100))).isZero();
    }

    /// What ends a group for the library and not for Java would reach the objects of others.
    @ParameterizedTest
    @ValueSource(
            strings = {
                "\\Q)|.*(?:\\E",
                "a\\E",
                "(?i)a",
                "(?x)a",
                "(?=a).*",
                "(?<n>a)",
                "[])|.*(?:a]",
                "[^])|.*(?:a]",
                "[[a])|.*(b]",
                "\\c)",
                "a("
            })
    void expressionsThatTheLibraryReadsOtherwiseAreRefused(String regex) {
        var store = open();
        assertThat(put(store, "a", bytes(1, 100))).isZero();
        assertThat(store.removeByRegex(regex, true)).isEqualTo(StoreCode.INVALID_PARAMS.number());
        assertThat(exists(store, "a")).isEqualTo(1);
        assertThat(store.removeByRegex("(?:[ab]|x)", true)).isEqualTo(1);
    }

    @Test
    void aStoreWithAHangingCallClosesAndLeavesTheLibraryAlone() {
        var store = impatient();
        mooncake.set(Knob.HANG, 1);
        assertThat(exists(store, "k")).isEqualTo(StoreCode.RPC_TIMEOUT.number());
        mooncake.await(Count.HANGING, 1);
        store.close();
        assertThat(exists(store, "k")).isEqualTo(StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number());
        assertThat(mooncake.count(Count.HANDLES))
                .as("not destroyed under the call")
                .isEqualTo(handles + 1);
        mooncake.set(Knob.HANG, 0);
        mooncake.await(Count.HANGING, 0);
    }

    @Test
    void aMasterThatIsAwayCostsNothingAndIsUsedOnceItComes() {
        mooncake.set(Knob.FAIL_SETUP, StoreCode.RPC_FAIL.number());
        var store = open();
        int away = StoreCode.RPC_FAIL.number();
        assertThat(store.healthCheck()).isEqualTo(away);
        assertThat(put(store, "k", bytes(1, 8))).isEqualTo(away);
        assertThat(get(store, "k", arena.allocate(8))).isEqualTo(away);
        assertThat(exists(store, "k")).isEqualTo(away);
        assertThat(store.remove("k", true)).isEqualTo(away);
        mooncake.set(Knob.FAIL_SETUP, 0);
        StoreDouble.await(() -> store.healthCheck() == 0, "it does not connect");
        assertThat(put(store, "k", bytes(1, 8))).isZero();
        store.close();
        mooncake.await(Count.HANDLES, handles);
        assertThat(mooncake.count(Count.REGISTERED)).isZero();
    }

    @Test
    void healthIsTheLibrarys() {
        var store = open();
        assertThat(store.healthCheck()).isZero();
        mooncake.set(Knob.HEALTH, -901);
        StoreDouble.await(() -> store.healthCheck() == -901, "not noticed");
        mooncake.set(Knob.HEALTH, 0);
        StoreDouble.await(() -> store.healthCheck() == 0, "not noticed");
    }

    @Test
    void storesOfOneConfigurationShareAClient() {
        var first = open();
        var second = ClusterStore.open(mooncake.config(), new StoreIdentity("t", "m", "l"));
        opened.add(second);
        assertThat(mooncake.count(Count.HANDLES)).isEqualTo(handles + 1);
        first.close();
        assertThat(put(second, "k", bytes(1, 100))).isZero();
        second.close();
        assertThat(mooncake.count(Count.HANDLES)).isEqualTo(handles);
        assertThat(mooncake.count(Count.REGISTERED)).isZero();
    }

    @Test
    void batchesAreCutToTheStagingMemoryAndLargeObjectsHaveTheirOwn() {
        var store = open();
        var value = bytes(8, 1 << 20);
        var large = bytes(9, CallMemory.STAGING + 5);
        var batch = new StoreBatch();
        int keys = 2 * CallMemory.MOST_KEYS + 3;
        for (int i = 0; i < keys; i++) {
            if (i == 5 || i == 6) {
                batch.add("k" + i).buffer(large);
            } else {
                batch.add(i == 9 ? "bad\0key" : "k" + i).buffer(value, i, i < 30 ? 1 << 19 : 1000);
            }
        }
        mooncake.set(Knob.CAPACITY, 128 << 20);
        var results = new int[keys];
        store.put(batch, PutOptions.DEFAULT, results);
        for (int i = 0; i < keys; i++) {
            assertThat(results[i])
                    .as("key %s", i)
                    .isEqualTo(i == 9 ? StoreCode.INVALID_PARAMS.number() : 0);
        }
        var back = arena.allocate(CallMemory.STAGING + 5);
        assertThat(get(store, "k6", back)).isEqualTo(large.byteSize());
        assertThat(back.mismatch(large)).isEqualTo(-1);
        var names = new ArrayList<String>();
        for (int i = 0; i < keys; i++) {
            names.add("k" + i);
        }
        store.exists(names, true, results);
        for (int i = 0; i < keys; i++) {
            assertThat(results[i]).as("key %s", i).isEqualTo(i == 9 ? 0 : 1);
        }
        assertThat(store.size("k5")).isEqualTo(large.byteSize());
        assertThat(get(store, "bad\0key", back)).isEqualTo(StoreCode.OBJECT_NOT_FOUND.number());
        assertThat(put(store, "x".repeat(300_000), value))
                .isEqualTo(StoreCode.INVALID_PARAMS.number());
    }

    @Test
    void optionsReachTheLibraryAndGapsAreReported() {
        var store = open();
        var results = new int[1];
        store.put(
                new StoreBatch().add("k").buffer(bytes(1, 100)),
                PutOptions.DEFAULT.preferring("10.0.0.1:50053", "other"),
                results);
        assertThat(results[0]).isZero();
        assertThat(mooncake.preferred()).isEqualTo("10.0.0.1:50053");
        var found = new @Nullable ReplicaDescriptor[1];
        store.describe(List.of("k"), found, results);
        assertThat(results[0]).isEqualTo(StoreCode.NOT_SUPPORTED.number());
        assertThat(store.removals().keys()).isEmpty();
        assertThat(store.usage()).isEmpty();
    }

    @Test
    void aLibraryThatIsNotThereIsNamedWithTheWayToGetIt() {
        var config = mooncake.config().withLibrary(Path.of("/no/such/libmooncake_store.so"));
        assertThatThrownBy(() -> ClusterStore.open(config, ONE))
                .hasMessageContaining("/no/such/libmooncake_store.so")
                .hasMessageContaining(ClusterConfig.LIBRARY_VARIABLE);
    }
}
