// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.spi.Deadline;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;

/// Where objects go, and what becomes of them when a segment does.
class SegmentsTest {
    private static final long SIZE = 1024;

    private final SteppedStore stepped = new SteppedStore();
    private final EmbeddedStore store = stepped.store;
    private final EmbeddedClient user = store.client(StoreContract.ONE);
    private final Arena arena = Arena.ofShared();
    private final MemorySegment value = arena.allocate(SIZE);

    @AfterEach
    void close() {
        stepped.close();
        arena.close();
    }

    private int put(String key, String... preferred) {
        var results = new int[1];
        user.put(
                new StoreBatch().add(key).buffer(value),
                PutOptions.DEFAULT.preferring(preferred),
                results);
        return results[0];
    }

    private String segmentOf(String key) {
        var found = new @Nullable ReplicaDescriptor[1];
        user.describe(List.of(key), found, new int[1]);
        return Objects.requireNonNull(found[0]).segment();
    }

    @Test
    void objectsGoToThePreferredSegmentWhileItHasRoom() {
        for (var name : List.of("a", "b", "c")) {
            store.mount(name, 10 * SIZE);
        }
        for (int i = 0; i < 10; i++) {
            assertThat(put("k" + i, "b")).isZero();
            assertThat(segmentOf("k" + i)).isEqualTo("b");
        }
        for (int i = 0; i < 10; i++) {
            assertThat(put("l" + i, "b", "c")).as("the next in order").isZero();
            assertThat(segmentOf("l" + i)).isEqualTo("c");
        }
        assertThat(put("m", "b", "c")).as("else any").isZero();
        assertThat(segmentOf("m")).isEqualTo("a");
    }

    @Test
    void anUnknownPreferenceIsNone() {
        for (var name : List.of("a", "b", "c", "d")) {
            store.mount(name, 100 * SIZE);
        }
        var used = new HashSet<String>();
        for (int i = 0; i < 200; i++) {
            assertThat(put("k" + i, "nowhere:1")).isZero();
            used.add(segmentOf("k" + i));
        }
        assertThat(used).hasSize(4);
    }

    @Test
    void descriptorsTellSegmentsOfOneNameApart() {
        for (int i = 0; i < 3; i++) {
            store.mount("a", 10 * SIZE);
        }
        for (int i = 0; i < 30; i++) {
            value.set(ValueLayout.JAVA_INT, 0, i);
            assertThat(put("k" + i, "a")).isZero();
        }
        for (int i = 0; i < 30; i++) {
            var found = new @Nullable ReplicaDescriptor[1];
            user.describe(List.of("k" + i), found, new int[1]);
            var memory = user.memory(Objects.requireNonNull(found[0]));
            assertThat(memory.get(ValueLayout.JAVA_INT, 0)).isEqualTo(i);
        }
    }

    @Test
    void unmountingLosesTheObjectsAndNoOthers() {
        store.mount("a", 10 * SIZE);
        store.mount("b", 10 * SIZE);
        put("k1", "a");
        put("k2", "b");
        assertThat(store.unmount("a")).isEqualTo(1);
        assertThat(store.unmount("a")).isZero();
        var results = new int[2];
        user.exists(List.of("k1", "k2"), false, results);
        assertThat(results).containsExactly(0, 1);
        store.mount("a", 10 * SIZE);
        user.exists(List.of("k1", "k2"), false, results);
        assertThat(results).as("mounted again, it is empty").containsExactly(0, 1);
    }

    @Test
    void theSegmentsOfAClientThatDoesNotPingAreUnmounted() {
        var owner = store.client(StoreContract.ONE);
        owner.mount("o", 10 * SIZE);
        put("k", "o");
        for (int i = 0; i < 5; i++) {
            stepped.pass(Duration.ofSeconds(9));
            assertThat(owner.ping()).isTrue();
            store.tick();
        }
        assertThat(store.segmentNames()).containsExactly("o");
        stepped.pass(Duration.ofSeconds(11));
        store.tick();
        assertThat(store.segmentNames()).isEmpty();
        assertThat(owner.ping()).as("it has to mount again").isFalse();
        assertThat(store.keyCount()).isZero();
        owner.mount("o", 10 * SIZE);
        assertThat(owner.ping()).isTrue();
        assertThat(put("k")).isZero();
        owner.close();
        assertThat(store.segmentNames()).isEmpty();
    }

    @Test
    void nothingIsMountedInWhatIsClosed() {
        var owner = store.client(StoreContract.ONE);
        owner.close();
        assertThatThrownBy(() -> owner.mount("o", 10 * SIZE)).hasMessageContaining("was closed");
        assertThat(store.capacity()).as("nobody would ever unmount it").isZero();
        store.close();
        assertThatThrownBy(() -> store.mount("a", 10 * SIZE))
                .hasMessageContaining("the store is closed");
        assertThat(store.capacity()).isZero();
    }

    @Test
    void removalsAreListedFromTheFirstQuestionOn() {
        store.mount("a", 10 * SIZE);
        put("before");
        user.remove("before", true);
        assertThat(user.removals()).isEqualTo(Store.Removals.NONE);
        put("k1");
        put("k2");
        put("k3");
        user.remove("k1", true);
        var stranger = store.client(new StoreIdentity("t2", "model", "bf16-16"));
        assertThat(stranger.removals()).isEqualTo(Store.Removals.NONE);
        user.removeAll(true);
        assertThat(user.removals().keys()).containsExactlyInAnyOrder("k1", "k2", "k3");
        put("k4");
        store.unmount("a");
        assertThat(user.removals().keys()).containsExactly("k4");
        assertThat(stranger.removals()).as("of another identity").isEqualTo(Store.Removals.NONE);
    }

    @Test
    void anIdentityThatNobodyHasIsForgotten() throws InterruptedException {
        try (var many = EmbeddedStore.open(StoreConfig.DEFAULT)) {
            for (int i = 0; i < 1000; i++) {
                many.client(new StoreIdentity("t" + i, "model", "layout")).close();
            }
            var limit = Deadline.in(Duration.ofSeconds(50));
            while (!many.identities().isEmpty()) {
                assertThat(limit.passed()).as("they stay").isFalse();
                System.gc();
                Thread.sleep(10);
            }
        }
    }
}
