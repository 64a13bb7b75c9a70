// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreContract;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.Objects;

/// Puts step by step, and what happens to puts that are never ended.
class PutStatesTest {
    private static final long SIZE = 4096;

    private final SteppedStore stepped = new SteppedStore();
    private final EmbeddedStore store = stepped.store;
    private final EmbeddedClient one = store.client(StoreContract.ONE);
    private final EmbeddedClient two = store.client(StoreContract.ONE);

    PutStatesTest() {
        store.mount("a", 16 * SIZE);
    }

    @AfterEach
    void close() {
        stepped.close();
    }

    private static int code(StoreCode code) {
        return code.number();
    }

    private record Begun(int code, PutSessions.@Nullable Started put) {
        PutSessions.Started started() {
            return Objects.requireNonNull(put);
        }
    }

    private static Begun start(EmbeddedClient client, String key) {
        return start(client, key, PutOptions.DEFAULT);
    }

    private static Begun start(EmbeddedClient client, String key, PutOptions options) {
        var started = new PutSessions.@Nullable Started[1];
        var results = new int[1];
        client.putStart(List.of(key), new long[] {SIZE}, List.of(), options, started, results);
        return new Begun(results[0], started[0]);
    }

    private static int exists(EmbeddedClient client, String key) {
        var results = new int[1];
        client.exists(List.of(key), false, results);
        return results[0];
    }

    private static long get(EmbeddedClient client, String key) {
        try (var arena = Arena.ofConfined()) {
            var results = new long[1];
            client.get(new StoreBatch().add(key).buffer(arena.allocate(SIZE)), results);
            return results[0];
        }
    }

    @Test
    void anObjectCanBeReadWhenItsPutHasEnded() {
        var put = start(one, "k").started();
        put.memory().fill((byte) 7);
        assertThat(exists(two, "k")).isZero();
        assertThat(get(two, "k")).isEqualTo(code(StoreCode.REPLICA_IS_NOT_READY));
        assertThat(two.size("k")).isEqualTo(code(StoreCode.REPLICA_IS_NOT_READY));
        assertThat(two.remove("k", true)).isEqualTo(code(StoreCode.REPLICA_IS_NOT_READY));
        assertThat(two.removeAll(true)).isZero();
        assertThat(one.putEnd("k", put.number(), 0)).isZero();
        assertThat(one.putEnd("k", put.number(), 0)).as("again").isZero();
        assertThat(get(two, "k")).isEqualTo(SIZE);
    }

    @Test
    void onlyTheWriterEndsAPut() {
        var put = start(one, "k").started();
        assertThat(two.putEnd("k", put.number(), 0)).isEqualTo(code(StoreCode.ILLEGAL_CLIENT));
        assertThat(two.putRevoke("k", put.number())).isEqualTo(code(StoreCode.ILLEGAL_CLIENT));
        assertThat(one.putEnd("none", put.number(), 0)).isEqualTo(code(StoreCode.OBJECT_NOT_FOUND));
        assertThat(one.putRevoke("none", put.number())).isEqualTo(code(StoreCode.OBJECT_NOT_FOUND));
        assertThat(one.putEnd("k", put.number(), 0)).isZero();
        assertThat(one.putRevoke("k", put.number())).isEqualTo(code(StoreCode.INVALID_WRITE));
    }

    @Test
    void aRevokedPutLeavesNothing() {
        var put = start(one, "k").started();
        assertThat(store.usedBytes()).isEqualTo(SIZE);
        assertThat(one.putRevoke("k", put.number())).isZero();
        assertThat(store.usedBytes()).isZero();
        assertThat(start(two, "k").code()).isZero();
    }

    @Test
    void aSecondPutHasToWaitForThirtySeconds() {
        var first = start(one, "k").started();
        assertThat(start(two, "k").code()).isEqualTo(code(StoreCode.OBJECT_ALREADY_EXISTS));
        stepped.pass(Duration.ofSeconds(30));
        assertThat(start(two, "k").code()).isEqualTo(code(StoreCode.OBJECT_ALREADY_EXISTS));
        stepped.pass(Duration.ofNanos(1));
        var second = start(two, "k").started();
        assertThat(second.replica().offset())
                .as("the first writer may still write")
                .isNotEqualTo(first.replica().offset());
        assertThat(one.putEnd("k", first.number(), 0)).isEqualTo(code(StoreCode.ILLEGAL_CLIENT));
        assertThat(two.putEnd("k", second.number(), 0)).isZero();
        assertThat(exists(one, "k")).isOne();
    }

    @Test
    void aPutOfTheSameClientIsNotEndedInPlaceOfALaterOne() {
        var first = start(one, "k").started();
        stepped.pass(Duration.ofSeconds(31));
        var second = start(one, "k").started();
        assertThat(one.putEnd("k", first.number(), 0)).isEqualTo(code(StoreCode.INVALID_WRITE));
        assertThat(one.putRevoke("k", first.number())).isEqualTo(code(StoreCode.INVALID_WRITE));
        assertThat(exists(one, "k")).isZero();
        assertThat(one.putEnd("k", second.number(), 0)).isZero();
    }

    @Test
    void theMemoryOfAReplacedPutIsUsedAgainAfterTenMinutes() {
        start(one, "k");
        stepped.pass(Duration.ofSeconds(31));
        start(two, "k");
        assertThat(store.usedBytes()).isEqualTo(2 * SIZE);
        assertThat(store.usage().discarded()).isEqualTo(SIZE);
        stepped.pass(Duration.ofSeconds(568));
        store.tick();
        assertThat(store.usage().discarded()).as("the second is as stale").isEqualTo(2 * SIZE);
        stepped.pass(Duration.ofSeconds(1));
        store.tick();
        assertThat(store.usedBytes()).isEqualTo(SIZE);
        stepped.pass(Duration.ofSeconds(31));
        store.tick();
        assertThat(store.usedBytes()).isZero();
        assertThat(store.keyCount()).isZero();
    }

    @Test
    void theMemoryOfAReplacedPutIsUsedAgainWhenItsWriterSaysThatItIsOver() {
        var ended = start(one, "k").started();
        var revoked = start(one, "l").started();
        stepped.pass(Duration.ofSeconds(31));
        start(two, "k");
        store.tick();
        assertThat(store.usage().discarded()).isEqualTo(2 * SIZE);
        assertThat(two.putEnd("k", ended.number(), 0)).isEqualTo(code(StoreCode.INVALID_WRITE));
        assertThat(store.usage().discarded()).as("of another client").isEqualTo(2 * SIZE);
        assertThat(one.putEnd("k", ended.number(), 0)).isEqualTo(code(StoreCode.ILLEGAL_CLIENT));
        assertThat(store.usage().discarded()).isEqualTo(SIZE);
        assertThat(one.putRevoke("l", revoked.number()))
                .isEqualTo(code(StoreCode.OBJECT_NOT_FOUND));
        assertThat(store.usage().discarded()).isZero();
        assertThat(store.usedBytes()).isEqualTo(SIZE);
    }

    @Test
    void unmountingTakesUnfinishedAndReplacedPutsToo() {
        start(one, "k");
        stepped.pass(Duration.ofSeconds(31));
        var put = start(two, "k").started();
        assertThat(store.unmount("a")).isEqualTo(1);
        assertThat(store.keyCount()).isZero();
        assertThat(store.capacity()).isZero();
        assertThat(two.putEnd("k", put.number(), 0)).isEqualTo(code(StoreCode.OBJECT_NOT_FOUND));
        assertThat(start(two, "k").code()).isEqualTo(code(StoreCode.NO_AVAILABLE_HANDLE));
        assertThat(two.noRoom()).contains("no segment is mounted");
    }

    @Test
    void whatIsBeingWrittenTakesRoomAndIsNotEvicted() {
        for (int i = 0; i < 16; i++) {
            assertThat(start(one, "k" + i).code()).isZero();
        }
        assertThat(start(one, "more").code()).isEqualTo(code(StoreCode.NO_AVAILABLE_HANDLE));
        assertThat(store.tick()).isZero();
        assertThat(one.noRoom()).contains("puts that are not complete");
        assertThat(start(one, "more").code()).isEqualTo(code(StoreCode.NO_AVAILABLE_HANDLE));
    }

    @Test
    void aChangedByteIsNoticedAndTheObjectDropped() {
        try (var checked = new SteppedStore(config -> config.withChecksums(true));
                var arena = Arena.ofConfined()) {
            checked.store.mount("a", 4 * SIZE);
            var client = checked.store.client(StoreContract.ONE);
            var memory = arena.allocate(SIZE);
            client.put(new StoreBatch().add("k").buffer(memory), PutOptions.DEFAULT, new int[1]);
            var found = new @Nullable ReplicaDescriptor[1];
            client.describe(List.of("k"), found, new int[1]);
            var replica = Objects.requireNonNull(found[0]);
            assertThat(replica.checksum()).isNotZero();
            client.memory(replica).set(ValueLayout.JAVA_BYTE, SIZE - 1, (byte) 1);
            assertThat(get(client, "k")).isEqualTo(code(StoreCode.CHECKSUM_MISMATCH));
            assertThat(get(client, "k")).isEqualTo(code(StoreCode.OBJECT_NOT_FOUND));
            assertThat(checked.store.usedBytes()).isZero();
        }
    }
}
