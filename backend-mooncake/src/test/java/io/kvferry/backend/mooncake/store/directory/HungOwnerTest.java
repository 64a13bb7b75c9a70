// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.remote.OwnerChild;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/// One of two owners, in its own process, is suspended and resumed later: meanwhile it neither
/// answers nor disconnects.
class HungOwnerTest {
    private static final int SIZE = 10_000;
    private static final Duration ASK = Duration.ofSeconds(2);
    private static final Duration MOVE = Duration.ofSeconds(5);

    private static int put(DirectoryStore store, String key, MemorySegment value, String owner) {
        var results = new int[1];
        store.put(
                new StoreBatch().add(key).buffer(value),
                PutOptions.DEFAULT.preferring(owner),
                results);
        return results[0];
    }

    private static long get(DirectoryStore store, String key, MemorySegment back) {
        var results = new long[1];
        store.get(new StoreBatch().add(key).buffer(back), results);
        return results[0];
    }

    @Test
    @Timeout(400)
    void itsKeysFailInTimeAndTheOthersAreServed() throws Exception {
        try (var arena = Arena.ofShared();
                var owners = new Owners(1, 8 << 20);
                var hung = new OwnerChild(0, 8 << 20, owners.master().address());
                var store =
                        DirectoryStore.open(
                                new RemoteStoreConfig(
                                        owners.master().address(),
                                        Optional.empty(),
                                        Optional.empty(),
                                        false,
                                        ASK,
                                        MOVE),
                                StoreContract.ONE,
                                false)) {
            var value = arena.allocate(SIZE, 64);
            for (int i = 0; i < SIZE; i++) {
                value.set(ValueLayout.JAVA_BYTE, i, (byte) (i * 31));
            }
            var back = arena.allocate(SIZE, 64);
            store.register(value);
            store.register(back);
            String there = owners.owner(0).address();
            Owners.await("both are found", () -> store.owners() == 2);
            Owners.await("stored", () -> put(store, "there", value, there) == 0);
            Owners.await("stored", () -> put(store, "hung", value, hung.address()) == 0);
            Owners.await("at the other one", () -> get(store, "hung", back) == SIZE);
            hung.stop();
            for (int i = 0; i < 3; i++) {
                long begin = System.nanoTime();
                assertThat(get(store, "hung", back)).as("a code").isNegative();
                assertThat(System.nanoTime() - begin)
                        .as("within its limits")
                        .isLessThan(Duration.ofSeconds(45).toNanos());
                back.fill((byte) 0);
                Owners.await("served", () -> get(store, "there", back) == SIZE);
                assertThat(back.mismatch(value)).isEqualTo(-1);
                var results = new int[2];
                Owners.await(
                        "looked up at the owner that answers",
                        () -> {
                            store.exists(List.of("there", "nowhere"), false, results);
                            return results[0] == 1 && results[1] == 0;
                        });
                String key = "new" + i;
                Owners.await("stored", () -> put(store, key, value, hung.address()) == 0);
                Owners.await("and read", () -> get(store, key, back) == SIZE);
            }
            hung.proceed();
            Owners.await("it is back", () -> get(store, "hung", back) == SIZE);
            assertThat(back.mismatch(value)).isEqualTo(-1);
        }
    }
}
