// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.backend.disk.store.StoreListener;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// Lookups on a file system that does not answer.
class DiskLookupsTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final FileLayout LAYOUT = new FileLayout(1, 1, 1);

    @TempDir Path root;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());
    private final CountDownLatch hang = new CountDownLatch(1);

    private BlockStore open() {
        var config = StoreConfig.of(root, "test").withReserveBytes(0);
        var times = config.times();
        return BlockStore.open(
                config.with(new StoreConfig.Pools(1, 1, 64))
                        .with(
                                new StoreConfig.Times(
                                        PATIENCE.multipliedBy(2),
                                        Duration.ZERO,
                                        times.tempMaxAge(),
                                        times.scanInterval(),
                                        times.recency())),
                StoreListener.NONE,
                calls);
    }

    private int hangLooks(String call, long count) {
        if (call.equals("status")) {
            try {
                assertThat(hang.await(PATIENCE.toSeconds() * 2, TimeUnit.SECONDS)).isTrue();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
        return 0;
    }

    /// The engine stops asking before the store's timeout, so the failure would never be seen and
    /// every request would wait in turn.
    @Test
    void missesSoonerThanTheStoreGivesUp() {
        var request = new DiskSavesTest.Request();
        try (var store = open()) {
            var lookups =
                    new DiskLookups(
                            store, new RunIndex(), PATIENCE.multipliedBy(2), Duration.ofMillis(2));
            assertThat(answer(lookups, request)).as("nothing is there").isZero();
            assertThat(lookups.drainFailures()).isZero();
            try {
                calls.hook = this::hangLooks;
                var givenUp = new Tracked(LAYOUT);
                assertThat(lookups.present(givenUp, request, 0, 4)).isEqualTo(DiskLookups.PENDING);
                assertThat(answer(lookups, request)).isZero();
                assertThat(lookups.drainFailures()).isPositive();
            } finally { // before the store is closed, which waits for it
                hang.countDown();
            }
        }
    }

    /// What lookups answer in the end, of a request that asks again and again.
    private static int answer(DiskLookups lookups, RequestView request) {
        var limit = Deadline.in(PATIENCE);
        var tracked = new Tracked(LAYOUT);
        int found;
        do {
            assertThat(limit.passed()).as("still pending").isFalse();
            found = lookups.present(tracked, request, 0, 4);
        } while (found == DiskLookups.PENDING);
        return found;
    }
}
