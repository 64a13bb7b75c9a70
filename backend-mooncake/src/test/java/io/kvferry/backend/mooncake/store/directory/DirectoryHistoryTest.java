// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.stream.IntStream;

/// Random histories of two users of three owners and a master, all of them processes that are
/// killed and started again: what a key holds is told by a map from keys to owners.
class DirectoryHistoryTest {
    private static final int OWNERS = 3;
    private static final int KEYS = 40;
    private static final int SIZE = 5000;
    private static final long OWNER_BYTES = 8 << 20;

    @Test
    @Timeout(500)
    void everyAnswerIsThatOfTheModelWhileOwnersAndMasterAreKilled() throws Exception {
        run(1, 150, 40);
    }

    /// `kvferry.soak.histories` says how many.
    @Test
    @Tag("soak")
    @Timeout(7200)
    void everyAnswerIsThatOfTheModelInManyHistories() throws Exception {
        run(Integer.getInteger("kvferry.soak.histories", 100), 600, 40);
    }

    /// @param calm steps of which one kills or starts a process
    private static void run(int histories, int steps, int calm) throws Exception {
        long first = Long.getLong("kvferry.soak.seed", 1);
        for (long seed = first; seed < first + histories; seed++) {
            try (var history = new History(seed)) {
                history.begin();
                for (int step = 0; step < steps; step++) {
                    history.step(calm);
                }
                history.processes.startAll();
                history.checkAll();
            } catch (Throwable e) {
                throw new AssertionError("history with -Dkvferry.soak.seed=" + seed, e);
            }
        }
    }

    private static final class History implements AutoCloseable {
        private final SplittableRandom random;
        private final Arena arena = Arena.ofShared();
        private final MemorySegment memory = arena.allocate((long) KEYS * SIZE, 64);
        private final StoreBatch batch = new StoreBatch();
        private final DirectoryProcesses processes = new DirectoryProcesses(OWNERS, OWNER_BYTES);
        private final List<DirectoryStore> users = new ArrayList<>();

        /// At which owner a key is.
        private final Map<String, Integer> at = new HashMap<>();

        /// Keys that went with an owner. A put that was not answered in time may have left a copy
        /// at another one.
        private final Set<String> lost = new HashSet<>();

        History(long seed) throws IOException {
            random = new SplittableRandom(seed);
        }

        void begin() throws Exception {
            processes.startAll();
            for (int i = 0; i < 2; i++) {
                var user =
                        DirectoryStore.open(
                                new RemoteStoreConfig(
                                        processes.master(),
                                        Optional.empty(),
                                        Optional.empty(),
                                        false,
                                        Owners.LONG,
                                        Owners.LONG),
                                StoreContract.ONE,
                                false);
                users.add(user);
                user.register(memory);
            }
            awaitOwners();
        }

        private void awaitOwners() {
            for (DirectoryStore user : users) {
                Owners.await("all owners are found", () -> user.owners() == processes.running());
            }
        }

        void step(int calm) throws Exception {
            var user = users.get(random.nextInt(users.size()));
            int kind = random.nextInt(calm) == 0 ? 100 : random.nextInt(100);
            if (kind < 40) {
                put(user);
            } else if (kind < 70) {
                get(user);
            } else if (kind < 90) {
                exists(user);
            } else if (kind < 99) {
                remove(user);
            } else if (kind < 100) {
                removeAll(user);
            } else {
                killOrStart();
            }
        }

        private List<String> someKeys() {
            var keys = new HashSet<String>();
            int count = 1 + random.nextInt(10);
            for (int i = 0; i < count; i++) {
                keys.add("k" + random.nextInt(KEYS));
            }
            return List.copyOf(keys);
        }

        private MemorySegment place(String key) {
            return memory.asSlice(Long.parseLong(key.substring(1)) * SIZE, SIZE);
        }

        private static byte content(String key, int index) {
            return (byte) (key.hashCode() * 31 + index * 7 + index / 256);
        }

        private void put(DirectoryStore user) {
            var keys = someKeys();
            batch.clear();
            for (String key : keys) {
                MemorySegment place = place(key);
                for (int i = 0; i < SIZE; i++) {
                    place.set(ValueLayout.JAVA_BYTE, i, content(key, i));
                }
                batch.add(key).buffer(place);
            }
            var preferred = processes.owner(random.nextInt(OWNERS));
            var options =
                    random.nextBoolean()
                            ? PutOptions.DEFAULT
                            : PutOptions.DEFAULT.preferring(preferred);
            var results = new int[keys.size()];
            Owners.await(
                    "stored",
                    () -> {
                        user.put(batch, options, results);
                        for (int result : results) {
                            assertThat(StoreCode.of(result)).isNotEqualTo(StoreCode.INVALID_PARAMS);
                        }
                        return Arrays.stream(results).allMatch(code -> code == 0);
                    });
            locate(user, keys);
        }

        /// Where keys are that have been stored.
        private void locate(DirectoryStore user, List<String> keys) {
            var found = new @Nullable ReplicaDescriptor[keys.size()];
            Owners.await(
                    "described",
                    () -> {
                        user.describe(keys, found, new int[keys.size()]);
                        return Arrays.stream(found).allMatch(Objects::nonNull);
                    });
            for (int i = 0; i < keys.size(); i++) {
                var replica = Objects.requireNonNull(found[i]);
                at.put(keys.get(i), processes.number(replica.segment()));
                lost.remove(keys.get(i));
            }
        }

        /// Whether an owner that runs has it.
        private boolean isThere(String key) {
            Integer owner = at.get(key);
            return owner != null && processes.runs(owner);
        }

        private void get(DirectoryStore user) {
            var keys = someKeys();
            var results = new long[keys.size()];
            Owners.await(
                    "got what is there",
                    () -> {
                        batch.clear();
                        keys.forEach(key -> batch.add(key).buffer(place(key).fill((byte) 0)));
                        user.get(batch, results);
                        return IntStream.range(0, keys.size())
                                .allMatch(i -> fits(keys.get(i), results[i]));
                    });
        }

        /// Whether the answer is that of the model; wrong bytes are never.
        private boolean fits(String key, long result) {
            if (result < 0) {
                assertThat(StoreCode.of(result)).as(key).isNotEqualTo(StoreCode.INTERNAL);
                return !isThere(key);
            }
            assertThat(result).isEqualTo(SIZE);
            assertThat(isThere(key) || lost.contains(key)).as("%s was removed", key).isTrue();
            MemorySegment place = place(key);
            for (int i = 0; i < SIZE; i++) {
                assertThat(place.get(ValueLayout.JAVA_BYTE, i))
                        .as("byte %d of %s", i, key)
                        .isEqualTo(content(key, i));
            }
            return true;
        }

        private void exists(DirectoryStore user) {
            var keys = someKeys();
            var results = new int[keys.size()];
            Owners.await(
                    "found what is there",
                    () -> {
                        user.exists(keys, random.nextBoolean(), results);
                        boolean all = true;
                        for (int i = 0; i < results.length; i++) {
                            boolean there = isThere(keys.get(i));
                            assertThat(results[i] == 1 && !there && !lost.contains(keys.get(i)))
                                    .as("%s was removed", keys.get(i))
                                    .isFalse();
                            all &= results[i] == 1 || !there;
                        }
                        return all;
                    });
        }

        private void remove(DirectoryStore user) {
            awaitOwners(); // one that is not seen keeps its copy
            String key = "k" + random.nextInt(KEYS);
            boolean there = isThere(key);
            Owners.await(
                    "removed",
                    () -> {
                        int code = user.remove(key, true);
                        return code == 0
                                || code == StoreCode.OBJECT_NOT_FOUND.number()
                                || goneWhereOwnersRun(user, List.of(key));
                    });
            if (there) {
                at.remove(key);
            }
            if (processes.running() == OWNERS) {
                lost.remove(key);
                at.remove(key);
            }
        }

        private void removeAll(DirectoryStore user) {
            awaitOwners();
            var keys = IntStream.range(0, KEYS).mapToObj(i -> "k" + i).toList();
            Owners.await(
                    "removed all",
                    () -> user.removeAll(true) >= 0 || goneWhereOwnersRun(user, keys));
            at.keySet().removeIf(this::isThere);
        }

        /// A removal fails while an owner is away, and the others have done it.
        private boolean goneWhereOwnersRun(DirectoryStore user, List<String> keys) {
            var found = new int[keys.size()];
            user.exists(keys, false, found);
            return processes.running() < OWNERS && Arrays.stream(found).allMatch(code -> code == 0);
        }

        /// At least one owner runs.
        private void killOrStart() throws Exception {
            int which = random.nextInt(OWNERS + 1);
            if (which == OWNERS) {
                processes.killMaster();
                if (random.nextBoolean()) { // for a while there is none
                    put(users.getFirst());
                    get(users.getLast());
                }
                processes.startMaster();
                return;
            }
            if (!processes.runs(which)) {
                processes.startOwner(which);
                awaitOwners();
            } else if (processes.running() > 1) {
                processes.killOwner(which);
                for (var keys = at.entrySet().iterator(); keys.hasNext(); ) {
                    var key = keys.next();
                    if (key.getValue() == which) {
                        lost.add(key.getKey());
                        keys.remove();
                    }
                }
            }
        }

        void checkAll() {
            awaitOwners();
            for (DirectoryStore user : users) {
                for (int i = 0; i < 10; i++) {
                    get(user);
                    exists(user);
                }
                Owners.await("well", () -> user.healthCheck() == 0);
            }
        }

        @Override
        public void close() {
            try (arena;
                    processes) {
                users.forEach(DirectoryStore::close);
            }
        }
    }
}
