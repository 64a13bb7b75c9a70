// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.master.ListedOwner;
import io.kvferry.backend.mooncake.store.master.MasterView;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// A user of several owners: where objects go, where they are looked for, and who comes and goes.
@Timeout(240)
class DirectoryStoreTest {
    private static final int SIZE = 10_000;

    private final Arena arena = Arena.ofShared();
    private final MemorySegment value = arena.allocate(SIZE, 64);
    private final MemorySegment back = arena.allocate(SIZE, 64);
    private final List<AutoCloseable> open = new ArrayList<>();

    DirectoryStoreTest() {
        for (int i = 0; i < SIZE; i++) {
            value.set(ValueLayout.JAVA_BYTE, i, (byte) (i * 31));
        }
    }

    @AfterEach
    void close() throws Exception {
        for (AutoCloseable each : open.reversed()) {
            each.close();
        }
        arena.close();
    }

    private Owners owners(int count, long bytes) {
        var owners = new Owners(count, bytes);
        open.add(owners);
        return owners;
    }

    private DirectoryStore user(Owners owners) {
        var store = owners.user(StoreContract.ONE);
        open.add(store);
        store.register(value);
        store.register(back);
        return store;
    }

    private int put(DirectoryStore store, String key, PutOptions options) {
        var results = new int[1];
        store.put(new StoreBatch().add(key).buffer(value), options, results);
        return results[0];
    }

    private int put(DirectoryStore store, String key) {
        return put(store, key, PutOptions.DEFAULT);
    }

    private long get(DirectoryStore store, String key) {
        back.fill((byte) 0);
        var results = new long[1];
        store.get(new StoreBatch().add(key).buffer(back), results);
        if (results[0] > 0) {
            assertThat(back.mismatch(value)).as("bytes of %s", key).isEqualTo(-1);
        }
        return results[0];
    }

    private static int exists(DirectoryStore store, String key) {
        var results = new int[1];
        store.exists(List.of(key), false, results);
        return results[0];
    }

    private static Set<String> keys(Owners owners, int number) {
        var store = owners.owner(number).store();
        var keys = new TreeSet<String>();
        store.identities().forEach(identity -> keys.addAll(store.keys(identity)));
        return keys;
    }

    @Test
    void objectsGoToThePreferredOwnerElseToAny() {
        var owners = owners(3, 8 << 20);
        var store = user(owners);
        for (int i = 0; i < 20; i++) {
            var options = PutOptions.DEFAULT.preferring(" ?", owners.owner(1).address());
            assertThat(put(store, "p" + i, options)).isZero();
        }
        assertThat(keys(owners, 1)).hasSize(20);
        for (int i = 0; i < 60; i++) {
            assertThat(put(store, "r" + i, PutOptions.DEFAULT.preferring("unknown"))).isZero();
        }
        int all = 0;
        for (int i = 0; i < 3; i++) {
            assertThat(keys(owners, i)).as("owner %d", i).isNotEmpty();
            all += keys(owners, i).size();
        }
        assertThat(all).as("each is at one owner").isEqualTo(80);
        for (int i = 0; i < 60; i++) {
            assertThat(get(store, "r" + i)).isEqualTo(SIZE);
        }
    }

    @Test
    void whatAnOwnerHasNoRoomForGoesToTheNext() {
        var owners = owners(2, 256 << 10);
        var store = user(owners);
        var options = PutOptions.DEFAULT.hardPinned().preferring(owners.owner(0).address());
        int stored = 0;
        while (put(store, "k" + stored, options) == 0) {
            stored++;
            assertThat(stored).isLessThan(100);
        }
        assertThat(put(store, "more", options)).isEqualTo(StoreCode.NO_AVAILABLE_HANDLE.number());
        assertThat(store.noRoom()).isNotEmpty();
        assertThat(keys(owners, 0).size()).isGreaterThanOrEqualTo(15);
        assertThat(keys(owners, 1).size()).isGreaterThanOrEqualTo(15);
        for (int i = 0; i < stored; i++) {
            assertThat(get(store, "k" + i)).isEqualTo(SIZE);
        }
    }

    @Test
    void theMembersOfAGroupAreAtOneOwner() {
        var owners = owners(3, 8 << 20);
        var first = user(owners);
        var second = user(owners);
        var batch = new StoreBatch();
        for (int i = 0; i < 60; i++) {
            batch.clear().add("k" + i, "g" + i % 10).buffer(value);
            var results = new int[1];
            (i < 30 ? first : second).put(batch, PutOptions.DEFAULT, results);
            assertThat(results[0]).isZero();
        }
        for (int group = 0; group < 10; group++) {
            int at = 0;
            for (int owner = 0; owner < 3; owner++) {
                int number = group;
                boolean any =
                        keys(owners, owner).stream()
                                .anyMatch(key -> Integer.parseInt(key.substring(1)) % 10 == number);
                at += any ? 1 : 0;
            }
            assertThat(at).as("owners of group %d", group).isOne();
        }
    }

    @Test
    void anotherUserFindsWhatItDidNotStore() {
        var owners = owners(3, 8 << 20);
        var writer = user(owners);
        for (int i = 0; i < 30; i++) {
            assertThat(put(writer, "k" + i)).isZero();
        }
        var reader = user(owners);
        var batch = new StoreBatch();
        var wide = arena.allocate(31L * SIZE);
        reader.register(wide);
        for (int i = 0; i <= 30; i++) {
            batch.add("k" + i).buffer(wide, (long) i * SIZE, SIZE);
        }
        for (int round = 0; round < 2; round++) {
            wide.fill((byte) 0);
            var results = new long[31];
            reader.get(batch, results);
            for (int i = 0; i < 30; i++) {
                assertThat(results[i]).isEqualTo(SIZE);
                assertThat(wide.asSlice((long) i * SIZE, SIZE).mismatch(value)).isEqualTo(-1);
            }
            assertThat(results[30]).isEqualTo(StoreCode.OBJECT_NOT_FOUND.number());
        }
    }

    @Test
    void anObjectAtTwoOwnersIsOneObject() {
        var owners = owners(2, 8 << 20);
        var store = user(owners);
        for (int owner = 0; owner < 2; owner++) { // as when two users put it at the same time
            var config = owners.config().at(owners.owner(owner).address());
            try (var one = RemoteStore.open(config, StoreContract.ONE, false)) {
                Owners.await("opened", () -> one.healthCheck() == 0);
                var results = new int[1];
                one.put(new StoreBatch().add("k").buffer(value), PutOptions.DEFAULT, results);
                assertThat(results[0]).isZero();
            }
        }
        assertThat(keys(owners, 0)).contains("k");
        assertThat(keys(owners, 1)).contains("k");
        assertThat(get(store, "k")).isEqualTo(SIZE);
        assertThat(store.remove("k", true)).isZero();
        assertThat(keys(owners, 0)).isEmpty();
        assertThat(keys(owners, 1)).isEmpty();
        assertThat(get(store, "k")).isEqualTo(StoreCode.OBJECT_NOT_FOUND.number());
    }

    @Test
    void anOwnerThatEndsTakesItsKeysAndNoOthers() {
        var owners = owners(2, 8 << 20);
        var store = user(owners);
        for (int i = 0; i < 2; i++) {
            var options = PutOptions.DEFAULT.preferring(owners.owner(i).address());
            assertThat(put(store, "k" + i, options)).isZero();
        }
        store.removals();
        owners.end(0, false);
        assertThat(get(store, "k0")).isNegative();
        assertThat(get(store, "k1")).isEqualTo(SIZE);
        assertThat(exists(store, "k1")).isOne();
        assertThat(exists(store, "k0")).isZero();
        assertThat(put(store, "k0", PutOptions.DEFAULT.preferring(owners.owner(0).address())))
                .as("it can be stored at the other one")
                .isZero();
        assertThat(get(store, "k0")).isEqualTo(SIZE);
        Owners.await("told", () -> store.removals().all());
        assertThat(store.healthCheck()).isZero();
        owners.end(1, false);
        Owners.await("noticed", () -> store.healthCheck() != 0);
        assertThat(get(store, "k1")).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(put(store, "k2")).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(exists(store, "k1")).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(store.remove("k1", true)).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(store.removeAll(true)).isEqualTo(StoreCode.RPC_FAIL.number());
    }

    @Test
    void aRemovalFailsWhileAnOwnerThatIsListedIsAway() {
        var owners = owners(2, 8 << 20);
        var store = user(owners);
        var there = PutOptions.DEFAULT.preferring(owners.owner(1).address());
        assertThat(put(store, "one", there)).isZero();
        assertThat(put(store, "other", there)).isZero();
        owners.end(0, false);
        Owners.await("noticed", () -> store.owners() == 1);
        assertThat(store.remove("one", true)).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(keys(owners, 1)).as("removed all the same").containsExactly("other");
        assertThat(store.removeByRegex("none", true)).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(store.removeAll(true)).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(keys(owners, 1)).isEmpty();
    }

    @Test
    void aRemovalFailsUntilAnOwnerThatIsNotListedIsBack() {
        var owners = owners(2, 8 << 20);
        var store = user(owners);
        var there = PutOptions.DEFAULT.preferring(owners.owner(0).address());
        assertThat(put(store, "k", there)).isZero();
        owners.unlist(0);
        Owners.await("gone", () -> store.owners() == 1);
        assertThat(store.removeAll(true)).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(store.remove("k", true)).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(keys(owners, 0)).as("it was not asked").containsExactly("k");
        owners.list(0);
        Owners.await("back", () -> store.owners() == 2);
        assertThat(store.removeAll(true)).isOne();
        assertThat(keys(owners, 0)).isEmpty();
    }

    /// It may be forgotten before or after the users have missed it.
    @Test
    void aRemovalSucceedsWithoutAnOwnerThatIsForgotten() {
        for (boolean missed : new boolean[] {true, false}) {
            var owners = owners(2, 8 << 20);
            var store = user(owners);
            String gone = owners.owner(0).address();
            assertThat(put(store, "there", PutOptions.DEFAULT.preferring(gone))).isZero();
            if (missed) {
                owners.unlist(0);
                Owners.await("missed", () -> store.owners() == 1);
                assertThat(store.removeAll(true)).isEqualTo(StoreCode.RPC_FAIL.number());
            }
            MasterView.forget(owners.config(), gone, true);
            Owners.await("told", () -> store.owners() == 1 && store.removeAll(true) >= 0);
            assertThat(store.remove("there", true)).isEqualTo(StoreCode.OBJECT_NOT_FOUND.number());
            if (missed) {
                owners.list(0); // it is there all the same
            }
            assertThat(get(store, "there")).isEqualTo(StoreCode.OBJECT_NOT_FOUND.number());
            assertThat(MasterView.ask(owners.config())).hasSize(1);
            assertThat(store.removeAll(true)).isZero();
        }
    }

    @Test
    void anOwnerThatCouldNotBeOpenedIsTriedAgain() {
        var owners = owners(1, 8 << 20);
        var master = owners.config();
        var hints = new KeyHints("test", 10_000);
        try (var fanOut = new FanOut();
                var members = new Members(master, StoreContract.ONE, false, fanOut, hints)) {
            var far = new ListedOwner("far", "192.0.2.1:5", 1, 1); // without a secret
            var near = MasterView.ask(master).getFirst();
            for (int i = 0; i < 3; i++) {
                assertThat(members.changed(List.of(near, far), true, Set.of())).isFalse();
                assertThat(members.known().members()).hasSize(1);
                assertThat(members.known().complete()).isFalse();
            }
            assertThat(members.changed(List.of(near), true, Set.of())).isTrue();
            assertThat(members.known().complete()).isTrue();
        }
    }

    @Test
    void callsForWhichNoThreadCanBeMadeRunHere() {
        var made = new AtomicInteger();
        try (var fanOut =
                new FanOut(task -> {
                    if (made.incrementAndGet() > 1) {
                        throw new OutOfMemoryError("no thread");
                    }
                    return Thread.ofPlatform().daemon().unstarted(task);
                })) {
            var rest = new CountDownLatch(3);
            var ended = new AtomicInteger();
            Runnable begun =
                    () -> {
                        try { // until the others have run
                            assertThat(rest.await(50, TimeUnit.SECONDS)).isTrue();
                        } catch (InterruptedException e) {
                            throw new IllegalStateException(e);
                        }
                        ended.incrementAndGet();
                    };
            fanOut.run(List.of(begun, rest::countDown, rest::countDown, rest::countDown));
            assertThat(ended).hasValue(1);
            assertThat(made).hasValueGreaterThan(1);
        }
    }

    @Test
    void aUserThatIsClosedTakesNoMemoryAndStartsNoEngine() {
        var owners = owners(1, 8 << 20);
        var engines = new UserEngines();
        assertThat(engines.register(value)).isZero();
        engines.close();
        assertThat(engines.register(back))
                .isEqualTo(StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number());
        assertThatThrownBy(() -> engines.of(owners.config()))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.CLOSED));
    }

    @Test
    void ownersComeAndGoWithTheListOfTheMaster() throws Exception {
        var owners = owners(1, 8 << 20);
        var store = user(owners);
        assertThat(put(store, "first")).isZero();
        int port = freePort();
        int second = owners.add(port);
        Owners.await("found", () -> store.owners() == 2);
        var there = PutOptions.DEFAULT.preferring(owners.owner(second).address());
        assertThat(put(store, "second", there)).isZero();
        assertThat(keys(owners, second)).containsExactly("second");
        store.removals();
        owners.end(second, true);
        assertThat(MasterView.ask(owners.config())).hasSize(1);
        Owners.await("gone", () -> store.owners() == 1 && store.removals().all());
        assertThat(get(store, "second")).isNegative();
        assertThat(get(store, "first")).isEqualTo(SIZE);
        int third = owners.add(port);
        Owners.await("another life of it", () -> store.owners() == 2);
        assertThat(get(store, "second")).isEqualTo(StoreCode.OBJECT_NOT_FOUND.number());
        assertThat(put(store, "second", there)).isZero();
        assertThat(keys(owners, third)).containsExactly("second");
    }

    @Test
    void usersGoOnWithoutTheMaster() {
        var owners = owners(2, 8 << 20);
        var store = user(owners);
        owners.master().close();
        for (int i = 0; i < 10; i++) {
            assertThat(put(store, "k" + i)).isZero();
            assertThat(get(store, "k" + i)).isEqualTo(SIZE);
        }
        assertThat(store.owners()).isEqualTo(2);
        Owners.await(
                "usage",
                () -> {
                    owners.pass(Duration.ofSeconds(2));
                    return store.usage().filter(usage -> usage.objects() == 10).isPresent();
                });
    }

    @Test
    void hintsAreBoundedInBytes() {
        var hints = new KeyHints("test", 10_000);
        for (int i = 0; i < 1000; i++) {
            hints.seen("key" + i, i % 2 == 0 ? "a" : "b");
            assertThat(hints.bytes()).isLessThanOrEqualTo(10_000);
        }
        assertThat(hints.find(List.of("key999", "key0"))).containsExactly("b", null);
        hints.forget("b");
        assertThat(hints.find(List.of("key999", "key998"))).containsExactly(null, "a");
        hints.missed("key998", "b");
        assertThat(hints.find(List.of("key998"))).containsExactly("a");
        hints.forget("a");
        assertThat(hints.bytes()).isZero();
    }

    @Test
    void aStoreWithoutOwnersIsAway() {
        var owners = owners(0, 8 << 20);
        var store = user(owners);
        assertThat(put(store, "k")).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(get(store, "k")).isEqualTo(StoreCode.RPC_FAIL.number());
        assertThat(store.removeAll(true)).isEqualTo(StoreCode.RPC_FAIL.number());
        owners.add(0);
        Owners.await("found", () -> put(store, "k") == 0);
        assertThat(get(store, "k")).isEqualTo(SIZE);
    }
}
