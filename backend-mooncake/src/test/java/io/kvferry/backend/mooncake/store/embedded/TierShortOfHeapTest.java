// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.SegmentTable;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.backend.mooncake.store.tier.BucketEviction;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.backend.mooncake.store.tier.TierConfig;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.memory.FullHeap;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/// As [EmbeddedShortOfHeapTest], over a disk tier: whichever allocation fails, no object stays
/// pinned, no staging memory is lost, and what can be read has the right bytes.
class TierShortOfHeapTest {
    @TempDir Path root;

    @ParameterizedTest
    @EnumSource(Call.class)
    void losesNoMemoryWhicheverAllocationFails(Call call) throws Exception {
        sweep(call, 512);
    }

    @Tag("soak")
    @ParameterizedTest
    @EnumSource(Call.class)
    void losesNoMemoryInSmallSteps(Call call) throws Exception {
        sweep(call, 48);
    }

    private void sweep(Call call, int step) throws Exception {
        int failures =
                FullHeap.runSweep(
                        root,
                        16,
                        Child.class,
                        call.name(),
                        Integer.toString(step),
                        root.toString());
        assertThat(failures).as("calls that failed").isPositive();
    }

    enum Call {
        /// Writes an object whose put has ended.
        OFFLOAD {
            @Override
            void work(Child child) {
                child.stepped.store.offloads.step(true);
            }
        },
        /// Evicts objects that are written first.
        EVICT {
            @Override
            void prepare(Child child) {
                child.stepped.store.wantEviction();
            }

            @Override
            void work(Child child) {
                child.stepped.store.tick();
                child.stepped.store.offloads.step(true);
            }
        },
        GET {
            @Override
            void prepare(Child child) {
                child.toDisk();
            }

            @Override
            void work(Child child) {
                child.client.get(child.batch, child.read);
            }
        },
        PIN {
            @Override
            void prepare(Child child) {
                child.toDisk();
            }

            @Override
            void work(Child child) {
                child.client.pin(child.keys).close();
            }
        };

        void prepare(Child child) {}

        abstract void work(Child child);
    }

    static final class Child implements FullHeap.Trial {
        private static final int BYTES = 5000;
        private static final int MOST = 512 << 10;
        private static final Duration LATEST = Duration.ofSeconds(20);

        private final Call call;
        private final SteppedStore stepped;
        private final EmbeddedClient client;
        private final List<String> keys = List.of("a", "b", "c");
        private final StoreBatch batch = new StoreBatch();
        private final int[] codes = new int[keys.size()];
        private final long[] read = new long[keys.size()];
        private final MemorySegment value;
        private final MemorySegment back;
        private int round;

        Child(Call call, Path folder, Arena arena) {
            this.call = call;
            this.value = arena.allocate(BYTES, 64);
            this.back = arena.allocate(BYTES, 64);
            var config =
                    TierConfig.of(folder.resolve("tier"), 1 << 20)
                            .withBuckets(64 << 10, 500, BucketEviction.FIFO)
                            .withStaging(100 << 10)
                            .withIo(
                                    DirectIo.OFF,
                                    Duration.ZERO,
                                    Duration.ofSeconds(60),
                                    Duration.ofSeconds(10));
            var tier = DiskTier.open(config, SegmentMemory.PRIVATE, FileCalls.ofPlatform());
            stepped = new SteppedStore(from -> from.withChecksums(true), new SegmentTable(), tier);
            stepped.store.mount("segment", 1 << 20);
            client = stepped.store.client(new StoreIdentity("test", "model", "layout"));
            client.register(value);
            client.register(back);
        }

        public static void main(String[] args) {
            try (var arena = Arena.ofShared()) {
                var child = new Child(Call.valueOf(args[0]), Path.of(args[2]), arena);
                FullHeap.sweepAndExit(Integer.parseInt(args[1]), MOST, child);
            }
        }

        @Override
        public void prepare() {
            round++;
            value.fill((byte) round);
            buffers(value);
            client.put(batch, PutOptions.DEFAULT, codes);
            assertThat(codes).containsOnly(0);
            stepped.pass(StoreConfig.DEFAULT.leaseTime().plusSeconds(1));
            buffers(back);
            call.prepare(this);
        }

        private void buffers(MemorySegment memory) {
            batch.clear();
            keys.forEach(key -> batch.add(key).buffer(memory));
        }

        /// Brings all to disk, and out of memory.
        private void toDisk() {
            while (stepped.store.offloads.step(true)) {
                Thread.onSpinWait();
            }
            for (int i = 0; i < keys.size() && stepped.store.usedBytes() > 0; i++) {
                stepped.store.wantEviction();
                stepped.store.tick();
            }
            assertThat(stepped.store.usedBytes()).as("used, all on disk").isZero();
        }

        @Override
        public boolean work() {
            call.work(this);
            return true;
        }

        @Override
        public void check(int left) {
            stepped.pass(Duration.ofMinutes(10)); // the end of a pause of the tier
            for (String key : keys) {
                back.fill((byte) ~round);
                client.get(new StoreBatch().add(key).buffer(back), read);
                if (read[0] >= 0) {
                    assertThat(back.mismatch(value))
                            .as("%s, %d bytes left", key, left)
                            .isNegative();
                }
            }
            assertThat(client.removeAll(true)).as("removed, %d bytes left", left).isNotNegative();
            while (stepped.store.offloads.step(true)) {
                Thread.onSpinWait();
            }
            var limit = Deadline.in(LATEST);
            while (staging() > 0 && !limit.passed()) {
                LockSupport.parkNanos(1_000_000); // a read that was given up ends
            }
            assertThat(staging()).as("staging, %d bytes left", left).isZero();
            assertThat(stepped.store.offloads.evictingBytes())
                    .as("evicting, %d bytes left", left)
                    .isZero();
            assertThat(stepped.store.usedBytes()).as("used, %d bytes left", left).isZero();
            assertThat(stepped.store.keyCount()).as("objects, %d bytes left", left).isZero();
            assertThat(stepped.store.objects.heapBytes()).as("heap, %d bytes left", left).isZero();
        }

        private long staging() {
            return stepped.store.gauges().getOrDefault("kvferry_disk_staging_bytes", 0L);
        }
    }
}
