// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.backend.mooncake.store.Store.Feature;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;

/// What every [Store] does, wherever its objects are. A subclass opens it; what it cannot do it
/// says by its features, and those tests are skipped by name.
public abstract class StoreContract {
    /// Whose objects the tests use.
    public static final StoreIdentity ONE = new StoreIdentity("", "model", "bf16-16");

    protected final Arena arena = Arena.ofShared();
    private final List<Store> opened = new ArrayList<>();
    private final StoreBatch batch = new StoreBatch();

    /// A user of the store of this test; the first call makes the store, with room for 64 MiB.
    protected abstract Store open(StoreIdentity identity);

    /// Lets time pass for the store; false where it cannot be hurried.
    protected boolean pass(Duration time) {
        return false;
    }

    /// Ends the store.
    protected abstract void shutDown();

    @AfterEach
    void close() {
        opened.forEach(Store::close);
        shutDown();
        arena.close();
    }

    protected final Store user(StoreIdentity identity) {
        Store store = open(identity);
        opened.add(store);
        return store;
    }

    protected final Store user() {
        return user(ONE);
    }

    protected final MemorySegment bytes(long seed, long length) {
        MemorySegment memory = arena.allocate(length, 64);
        var random = new SplittableRandom(seed);
        for (long i = 0; i < length; i++) {
            memory.set(ValueLayout.JAVA_BYTE, i, (byte) random.nextInt());
        }
        return memory;
    }

    protected final int put(Store store, String key, MemorySegment... pieces) {
        return put(store, key, PutOptions.DEFAULT, pieces);
    }

    protected final int put(Store store, String key, PutOptions options, MemorySegment... pieces) {
        batch.clear().add(key);
        for (MemorySegment piece : pieces) {
            store.register(piece);
            batch.buffer(piece);
        }
        var results = new int[1];
        store.put(batch, options, results);
        return results[0];
    }

    protected final long get(Store store, String key, MemorySegment... pieces) {
        batch.clear().add(key);
        for (MemorySegment piece : pieces) {
            store.register(piece);
            batch.buffer(piece);
        }
        var results = new long[1];
        store.get(batch, results);
        return results[0];
    }

    protected static int exists(Store store, String key) {
        var results = new int[1];
        store.exists(List.of(key), true, results);
        return results[0];
    }

    private static int code(StoreCode code) {
        return code.number();
    }

    @Test
    void whatWasPutIsRead() {
        Store store = user();
        var value = bytes(1, 300_000);
        assertThat(put(store, "k", value)).isZero();
        var back = arena.allocate(300_000);
        assertThat(get(store, "k", back)).isEqualTo(300_000);
        assertThat(back.mismatch(value)).isEqualTo(-1);
        assertThat(store.size("k")).isEqualTo(300_000);
        assertThat(store.healthCheck()).isZero();
    }

    @Test
    void gathersAndScattersBuffersOfDifferentCuts() {
        Store store = user();
        var value = bytes(2, 10_000);
        assertThat(
                        put(
                                store,
                                "k",
                                value.asSlice(0, 1),
                                value.asSlice(1, 4095),
                                value.asSlice(4096, 5904)))
                .isZero();
        var back = arena.allocate(10_000);
        assertThat(get(store, "k", back.asSlice(0, 7000), back.asSlice(7000, 3000)))
                .isEqualTo(10_000);
        assertThat(back.mismatch(value)).isEqualTo(-1);
    }

    @Test
    void readsIntoMoreRoomThanNeededAndRefusesLess() {
        Store store = user();
        var value = bytes(3, 5000);
        put(store, "k", value);
        var wide = arena.allocate(9000);
        assertThat(get(store, "k", wide.asSlice(0, 3000), wide.asSlice(3000, 6000)))
                .isEqualTo(5000);
        assertThat(wide.asSlice(0, 5000).mismatch(value)).isEqualTo(-1);
        for (long i = 5000; i < 9000; i++) {
            assertThat(wide.get(ValueLayout.JAVA_BYTE, i)).isZero();
        }
        assertThat(get(store, "k", arena.allocate(4999))).isEqualTo(code(StoreCode.INVALID_PARAMS));
    }

    @Test
    void batchesAnswerPerKey() {
        Store store = user();
        var value = bytes(4, 4096);
        var many = new StoreBatch();
        var results = new int[100];
        for (int i = 0; i < 100; i++) {
            many.add(i == 50 ? "" : "k" + i).buffer(value, i * 8L, 1000 + i);
        }
        store.put(many, PutOptions.DEFAULT, results);
        for (int i = 0; i < 100; i++) {
            assertThat(results[i]).isEqualTo(i == 50 ? code(StoreCode.INVALID_PARAMS) : 0);
        }
        var back = arena.allocate(100 * 1200);
        var got = new long[100];
        many.clear();
        for (int i = 0; i < 100; i++) {
            many.add(i == 7 ? "absent" : "k" + i).buffer(back, i * 1200L, 1200);
        }
        store.get(many, got);
        for (int i = 0; i < 100; i++) {
            if (i == 7 || i == 50) {
                assertThat(got[i]).isEqualTo(code(StoreCode.OBJECT_NOT_FOUND));
            } else {
                assertThat(got[i]).isEqualTo(1000 + i);
                assertThat(back.asSlice(i * 1200L, got[i]).mismatch(value.asSlice(i * 8L, got[i])))
                        .isEqualTo(-1);
            }
        }
    }

    @Test
    void objectsDoNotChange() {
        Store store = user();
        var first = bytes(5, 2000);
        assertThat(put(store, "k", first)).isZero();
        assertThat(put(store, "k", bytes(6, 3000))).as("there already, which is as good").isZero();
        var back = arena.allocate(2000);
        assertThat(get(store, "k", back)).isEqualTo(2000);
        assertThat(back.mismatch(first)).isEqualTo(-1);
    }

    @Test
    void refusesWhatIsNoObject() {
        Store store = user();
        assertThat(put(store, "", bytes(1, 8))).isEqualTo(code(StoreCode.INVALID_PARAMS));
        assertThat(put(store, "k")).isEqualTo(code(StoreCode.INVALID_PARAMS));
        var none = new PutOptions(0, Duration.ZERO, false, List.of());
        assertThat(put(store, "k", none, bytes(1, 8))).isEqualTo(code(StoreCode.INVALID_PARAMS));
        var tooLong = PutOptions.DEFAULT.softPinned(Duration.ofHours(25));
        assertThat(put(store, "k", tooLong, bytes(1, 8))).isEqualTo(code(StoreCode.INVALID_PARAMS));
        assertThat(exists(store, "k")).isZero();
    }

    @Test
    void missesAreMisses() {
        Store store = user();
        assertThat(get(store, "k", arena.allocate(8))).isEqualTo(code(StoreCode.OBJECT_NOT_FOUND));
        assertThat(exists(store, "k")).isZero();
        assertThat(store.size("k")).isEqualTo(code(StoreCode.OBJECT_NOT_FOUND));
        assertThat(store.remove("k", true)).isEqualTo(code(StoreCode.OBJECT_NOT_FOUND));
    }

    @Test
    void aLeaseKeepsAnObjectFromBeingRemoved() {
        Store store = user();
        put(store, "k", bytes(1, 100));
        assertThat(store.remove("k", false)).as("a put leaves no lease").isZero();
        put(store, "k", bytes(1, 100));
        assertThat(exists(store, "k")).isOne();
        assertThat(store.remove("k", false)).isEqualTo(code(StoreCode.OBJECT_HAS_LEASE));
        assertThat(store.remove("k", true)).isZero();
        assertThat(exists(store, "k")).isZero();
    }

    @Test
    void aLookupWithoutLeaseLeavesNone() {
        Store store = user();
        assumeTrue(store.features().contains(Feature.EXISTS_WITHOUT_LEASE), "always leases");
        put(store, "k", bytes(1, 100));
        var results = new int[1];
        store.exists(List.of("k"), false, results);
        assertThat(results[0]).isOne();
        assertThat(store.remove("k", false)).isZero();
    }

    @Test
    void leasesEnd() {
        Store store = user();
        put(store, "k", bytes(1, 100));
        exists(store, "k");
        assumeTrue(pass(Duration.ofSeconds(11)), "the clock of this store is not ours");
        assertThat(store.remove("k", false)).isZero();
    }

    @Test
    void removesByExpression() {
        Store store = user();
        for (int i = 0; i < 20; i++) {
            put(store, (i % 2 == 0 ? "even" : "odd") + i, bytes(i, 64));
        }
        exists(store, "even4");
        assertThat(store.removeByRegex("even.*", false)).isEqualTo(9);
        assertThat(store.removeByRegex("even.*", true)).isEqualTo(1);
        assertThat(store.removeByRegex("even(", true)).isEqualTo(code(StoreCode.INVALID_PARAMS));
        exists(store, "odd1");
        assertThat(store.removeAll(false)).isEqualTo(9);
        assertThat(store.removeAll(true)).isEqualTo(1);
    }

    @Test
    void describesWhereObjectsAre() {
        Store store = user();
        assumeTrue(store.features().contains(Feature.DESCRIPTORS), "knows no descriptors");
        put(store, "k", bytes(1, 777));
        var found = new @Nullable ReplicaDescriptor[2];
        var results = new int[2];
        store.describe(List.of("k", "absent"), found, results);
        assertThat(results).containsExactly(0, code(StoreCode.OBJECT_NOT_FOUND));
        assertThat(found[1]).isNull();
        var replica = found[0];
        assertThat(replica).isNotNull();
        if (replica != null) {
            assertThat(replica.length()).isEqualTo(777);
            assertThat(replica.isMemoryReplica()).isTrue();
            assertThat(replica.isLocalDiskReplica() || replica.isDiskReplica()).isFalse();
            assertThat(replica.leaseNanos()).isPositive();
        }
        assertThat(store.remove("k", false)).isEqualTo(code(StoreCode.OBJECT_HAS_LEASE));
    }

    @Test
    void anotherModelLayoutOrTenantSeesNothing() {
        Store store = user();
        assumeTrue(store.features().contains(Feature.TENANTS), "one name space for all");
        var value = bytes(1, 500);
        put(store, "k", value);
        for (var other :
                List.of(
                        new StoreIdentity("", "model2", ONE.layout()),
                        new StoreIdentity("", ONE.model(), "fp8-16"),
                        new StoreIdentity("t2", ONE.model(), ONE.layout()))) {
            Store stranger = user(other);
            assertThat(exists(stranger, "k")).isZero();
            assertThat(get(stranger, "k", arena.allocate(500)))
                    .isEqualTo(code(StoreCode.OBJECT_NOT_FOUND));
            assertThat(stranger.remove("k", true)).isEqualTo(code(StoreCode.OBJECT_NOT_FOUND));
            assertThat(stranger.removeAll(true)).isZero();
            var own = bytes(2, 500);
            assertThat(put(stranger, "k", own)).isZero();
            var back = arena.allocate(500);
            assertThat(get(stranger, "k", back)).isEqualTo(500);
            assertThat(back.mismatch(own)).isEqualTo(-1);
        }
        var back = arena.allocate(500);
        assertThat(get(user(), "k", back)).isEqualTo(500);
        assertThat(back.mismatch(value)).isEqualTo(-1);
    }

    @Test
    void whatDoesNotFitIsRefusedWithAReason() {
        Store store = user();
        var huge = arena.allocate(65L << 20);
        assertThat(put(store, "huge", huge)).isEqualTo(code(StoreCode.NO_AVAILABLE_HANDLE));
        assertThat(store.noRoom()).isNotEmpty();
        assertThat(exists(store, "huge")).isZero();
    }

    @Test
    void registrationsAreCounted() {
        Store store = user();
        var memory = arena.allocate(4096);
        assertThat(store.register(memory)).isZero();
        assertThat(store.register(memory)).isZero();
        assertThat(store.unregister(memory)).isZero();
        assertThat(store.unregister(memory)).isZero();
        assertThat(store.unregister(memory)).isEqualTo(code(StoreCode.INVALID_PARAMS));
        assertThat(store.register(MemorySegment.ofArray(new byte[8])))
                .isEqualTo(code(StoreCode.INVALID_PARAMS));
    }

    @Test
    void aClosedStoreAnswersSo() {
        Store store = user();
        put(store, "k", bytes(1, 8));
        store.close();
        int closed = code(StoreCode.UNAVAILABLE_IN_CURRENT_STATUS);
        assertThat(put(store, "k2", bytes(1, 8))).isEqualTo(closed);
        assertThat(get(store, "k", arena.allocate(8))).isEqualTo(closed);
        assertThat(exists(store, "k")).isEqualTo(closed);
        assertThat(store.healthCheck()).isEqualTo(closed);
        assertThat(exists(user(), "k")).as("the objects stay").isOne();
    }
}
