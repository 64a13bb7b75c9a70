// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.backend.mooncake.store.tier.TierConfig;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.DirectIo;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/// The stores of a JVM.
class EmbeddedStoresTest {
    private final String name = "stores-" + UUID.randomUUID();

    @TempDir Path folder;

    private static EmbeddedStores.Use use(String name, StoreConfig config) {
        return EmbeddedStores.use(name, "s", 1 << 20, config, Duration.ofMillis(1));
    }

    private EmbeddedStores.Use useTier() {
        var tier =
                TierConfig.of(folder.resolve("tier"), 1 << 20)
                        .withIo(
                                DirectIo.OFF,
                                Duration.ZERO,
                                Duration.ofSeconds(60),
                                Duration.ofSeconds(10));
        return EmbeddedStores.use(
                name, "s", 1 << 20, StoreConfig.DEFAULT, Duration.ofMillis(1), Optional.of(tier));
    }

    private static void put(EmbeddedStore store) {
        try (var arena = Arena.ofShared()) {
            var results = new int[1];
            store.client(new StoreIdentity("", "model", "layout"))
                    .put(
                            new StoreBatch().add("k").buffer(arena.allocate(100)),
                            PutOptions.DEFAULT,
                            results);
            assertThat(results).containsOnly(0);
        }
    }

    private static void awaitGo(CountDownLatch go) {
        try {
            go.await(100, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void awaitClosing() throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (EmbeddedStores.find(name).isPresent()) {
            assertThat(System.nanoTime() - end).isNegative();
            Thread.sleep(1);
        }
    }

    private static <T> CompletableFuture<T> inBackground(Supplier<T> work) {
        return CompletableFuture.supplyAsync(work, task -> Thread.ofPlatform().start(task));
    }

    /// The clock of a store is asked first when it is opened, which here takes until it is let go.
    @Test
    void openingOneStoreDoesNotHoldUpTheOthers() throws Exception {
        var opening = new CountDownLatch(1);
        var go = new CountDownLatch(1);
        LongSupplier clock =
                () -> {
                    opening.countDown();
                    awaitGo(go);
                    return System.nanoTime();
                };
        var slow = StoreConfig.DEFAULT.steppedBy(clock);
        var first = inBackground(() -> use(name, slow));
        assertThat(opening.await(100, TimeUnit.SECONDS)).isTrue();
        var second = inBackground(() -> use(name, slow));
        try (var other =
                inBackground(() -> use(name + "-other", StoreConfig.DEFAULT))
                        .get(60, TimeUnit.SECONDS)) {
            assertThat(other.store().capacity()).isPositive();
            assertThat(EmbeddedStores.find(name)).as("not open yet").isEmpty();
        } finally {
            go.countDown();
            EmbeddedStores.closeNow(name + "-other");
        }
        try (var one = first.get(60, TimeUnit.SECONDS);
                var same = second.get(60, TimeUnit.SECONDS)) {
            assertThat(same.store()).isSameAs(one.store());
        } finally {
            EmbeddedStores.closeNow(name);
        }
    }

    /// Closing visits all objects, which here takes until the lock of one is let go.
    @Test
    void aStoreIsOpenedAnewWhenItHasBeenClosed() throws Exception {
        var visiting = new CountDownLatch(1);
        var go = new CountDownLatch(1);
        var first = useTier();
        var store = first.store();
        put(store);
        Thread visitor =
                Thread.ofPlatform()
                        .start(() ->
                                store.objects.forEach(_ -> {
                                    visiting.countDown();
                                    awaitGo(go);
                                }));
        var again = new FutureTask<>(this::useTier);
        Thread user = Thread.ofPlatform().unstarted(again);
        try {
            assertThat(visiting.await(60, TimeUnit.SECONDS)).isTrue();
            first.close();
            awaitClosing();
            user.start();
            while (user.getState() != Thread.State.TIMED_WAITING && !again.isDone()) {
                Thread.sleep(1);
            }
        } finally {
            go.countDown();
            visitor.join();
        }
        try (var second = again.get(60, TimeUnit.SECONDS)) {
            assertThat(second.store()).isNotSameAs(store);
        } finally {
            EmbeddedStores.closeNow(name);
        }
    }

    @Test
    void aStoreIsOpenedAnewAlsoWhereClosingItFailed() throws Exception {
        try (var arena = Arena.ofShared();
                var first = useTier()) {
            first.store()
                    .mount(
                            "stays",
                            1 << 20,
                            bytes ->
                                    new SegmentMemory.Taken(
                                            arena.allocate(bytes),
                                            () -> {
                                                throw new IllegalStateException("says the test");
                                            }));
        }
        awaitClosing();
        try (var second = useTier()) {
            assertThat(second.store().segmentNames()).containsExactly("s");
        } finally {
            EmbeddedStores.closeNow(name);
        }
    }

    @Test
    void aStoreThatCouldNotBeOpenedIsTriedAgain() {
        assertThatThrownBy(() ->
                        EmbeddedStores.use(name, "s", 100, StoreConfig.DEFAULT, Duration.ZERO))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("100 bytes");
        assertThat(EmbeddedStores.find(name)).isEmpty();
        try (var use = use(name, StoreConfig.DEFAULT)) {
            assertThat(use.store().capacity()).isEqualTo(1 << 20);
        } finally {
            EmbeddedStores.closeNow(name);
        }
    }
}
