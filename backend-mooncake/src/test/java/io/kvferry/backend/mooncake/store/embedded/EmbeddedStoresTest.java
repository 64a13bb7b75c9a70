// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/// The stores of a JVM.
class EmbeddedStoresTest {
    private final String name = "stores-" + UUID.randomUUID();

    private static EmbeddedStores.Use use(String name, StoreConfig config) {
        return EmbeddedStores.use(name, "s", 1 << 20, config, Duration.ofMillis(1));
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
                    try {
                        go.await(100, TimeUnit.SECONDS);
                    } catch (InterruptedException e) {
                        Thread.currentThread().interrupt();
                    }
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
