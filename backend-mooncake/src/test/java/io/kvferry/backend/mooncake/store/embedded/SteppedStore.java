// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.embedded.objects.SegmentTable;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.tier.DiskTier;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.UnaryOperator;

/// An embedded store whose clock is moved by the test.
final class SteppedStore implements AutoCloseable {
    final AtomicLong nanos = new AtomicLong(Long.MAX_VALUE - 1_000_000_000L); // overflows soon
    final EmbeddedStore store;

    SteppedStore(UnaryOperator<StoreConfig> config) {
        this(config, new SegmentTable());
    }

    SteppedStore(UnaryOperator<StoreConfig> config, SegmentTable segments) {
        this(config, segments, null);
    }

    SteppedStore(
            UnaryOperator<StoreConfig> config, SegmentTable segments, @Nullable DiskTier tier) {
        store =
                EmbeddedStore.open(
                        config.apply(StoreConfig.DEFAULT).steppedBy(nanos::get), segments, tier);
    }

    SteppedStore() {
        this(config -> config);
    }

    SteppedStore pass(Duration time) {
        nanos.addAndGet(time.toNanos());
        return this;
    }

    @Override
    public void close() {
        store.close();
    }
}
