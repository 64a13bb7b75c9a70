// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.SegmentTable;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.backend.mooncake.store.tier.BucketEviction;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.backend.mooncake.store.tier.TierConfig;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32C;

/// A store over a disk tier: what goes there, what comes back, and what failures leave.
class DiskTierTest {
    private static final StoreIdentity ONE = new StoreIdentity("", "model", "layout");
    private static final int SIZE = 10_000;

    @TempDir Path folder;

    private final Arena arena = Arena.ofShared();
    private final CallFault fault = new CallFault();
    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());
    private @Nullable SteppedStore stepped;

    @BeforeEach
    void injectFaults() {
        calls.hook = fault;
    }

    @AfterEach
    void close() {
        if (stepped != null) {
            stepped.close();
        }
        arena.close();
    }

    private TierConfig config() {
        return TierConfig.of(folder.resolve("tier"), 1 << 20)
                .withBuckets(64 << 10, 500, BucketEviction.FIFO)
                .withStaging(100 << 10)
                .withIo(
                        DirectIo.OFF,
                        Duration.ZERO,
                        Duration.ofSeconds(60),
                        Duration.ofSeconds(10));
    }

    private EmbeddedStore open(TierConfig config) {
        var tier = DiskTier.open(config, SegmentMemory.PRIVATE, calls);
        var made = new SteppedStore(from -> from.withChecksums(true), new SegmentTable(), tier);
        made.store.mount("a", 200_000);
        stepped = made;
        return made.store;
    }

    private EmbeddedStore reopen(TierConfig config) {
        Objects.requireNonNull(stepped).close();
        return open(config);
    }

    private MemorySegment bytes(int seed) {
        MemorySegment memory = arena.allocate(SIZE);
        for (int i = 0; i < SIZE; i++) {
            memory.set(ValueLayout.JAVA_BYTE, i, (byte) (seed * 31 + i * 7 + (i >>> 8)));
        }
        return memory;
    }

    private int put(EmbeddedClient client, String key, int seed) {
        var results = new int[1];
        client.put(new StoreBatch().add(key).buffer(bytes(seed)), PutOptions.DEFAULT, results);
        return results[0];
    }

    private long get(EmbeddedClient client, String key, int seed) {
        MemorySegment into = arena.allocate(SIZE);
        var results = new long[1];
        client.get(
                new StoreBatch().add(key).buffer(into, 0, 4000).buffer(into, 4000, SIZE - 4000),
                results);
        if (results[0] >= 0) {
            assertThat(into.mismatch(bytes(seed))).as(key).isEqualTo(-1);
        }
        return results[0];
    }

    private static ReplicaDescriptor.@Nullable Tier where(EmbeddedClient client, String key) {
        var found = new ReplicaDescriptor[1];
        client.describe(List.of(key), found, new int[1]);
        return found[0] == null ? null : found[0].tier();
    }

    /// Writes all that waits.
    private static void offload(EmbeddedStore store) {
        while (store.offloads.step(true)) {
            // the next bucket
        }
    }

    private void pass(Duration time) {
        Objects.requireNonNull(stepped).pass(time);
    }

    /// Puts `count` objects, brings them to disk and evicts as many from memory as it takes.
    private EmbeddedClient filled(EmbeddedStore store, int count) {
        var client = store.client(ONE);
        for (int i = 0; i < count; i++) {
            assertThat(put(client, "k" + i, i)).isZero();
            offload(store);
            store.tick();
            pass(Duration.ofMillis(1));
        }
        return client;
    }

    @Test
    void readsFromDiskWhatWasEvictedFromMemory() {
        var store = open(config());
        var client = filled(store, 40);
        assertThat(store.usedBytes()).isLessThanOrEqualTo(200_000);
        assertThat(where(client, "k0")).isEqualTo(ReplicaDescriptor.Tier.LOCAL_DISK);
        assertThat(where(client, "k39")).isEqualTo(ReplicaDescriptor.Tier.MEMORY);
        for (int i = 0; i < 40; i++) {
            assertThat(get(client, "k" + i, i)).isEqualTo(SIZE);
        }
        assertThat(store.counters()).containsEntry("kvferry_disk_offloaded_keys_total", 40L);
        assertThat(store.counters().get("file_cache_hit_nums_")).isPositive();
        store.usage();
        assertThat(store.gauges()).containsEntry("file_cache_nums_", 40L);
        assertThat(store.gauges()).containsEntry("kvferry_disk_staging_bytes", 0L);
    }

    @Test
    void writesOnEvictionOnlyWhereAskedFor() {
        var store = open(config().withMoves(true, 0));
        var client = store.client(ONE);
        for (int i = 0; i < 5; i++) {
            put(client, "k" + i, i);
        }
        offload(store);
        assertThat(store.counters()).containsEntry("kvferry_disk_offloaded_keys_total", 0L);
        for (int i = 5; i < 19; i++) {
            put(client, "k" + i, i);
        }
        store.tick(); // chosen, and still in memory
        assertThat(where(client, "k0")).isEqualTo(ReplicaDescriptor.Tier.MEMORY);
        assertThat(store.usedBytes()).isGreaterThan(180_000);
        pass(Duration.ofSeconds(11)); // the lease of the question
        offload(store);
        assertThat(store.usedBytes()).isLessThan(185_000);
        for (int i = 0; i < 19; i++) {
            assertThat(get(client, "k" + i, i)).isEqualTo(SIZE);
        }
    }

    @Test
    void aBatchOfMoreThanTheStagingMemoryIsReadPieceByPiece() {
        var store = open(config());
        var client = filled(store, 40);
        var batch = new StoreBatch();
        MemorySegment into = arena.allocate(40L * SIZE);
        for (int i = 0; i < 40; i++) {
            batch.add("k" + i).buffer(into, (long) i * SIZE, SIZE);
        }
        var results = new long[40];
        client.get(batch, results);
        assertThat(results).containsOnly(SIZE);
        for (int i = 0; i < 40; i++) {
            assertThat(into.asSlice((long) i * SIZE, SIZE).mismatch(bytes(i))).isEqualTo(-1);
        }
    }

    @Test
    void pinsAreBoundedByTheStagingMemory() {
        var store = open(config());
        var client = filled(store, 40);
        var keys = List.of("k0", "k1", "k2", "k3", "k4", "k5", "k6");
        try (var pinned = client.pin(keys)) {
            for (int i = 0; i < keys.size(); i++) {
                if (i < 5) { // 20480 bytes of staging each, of 102400
                    assertThat(pinned.result(i)).isEqualTo(SIZE);
                    assertThat(pinned.memory(i).mismatch(bytes(i))).isEqualTo(-1);
                    assertThat(pinned.checksum(i))
                            .isEqualTo(BatchCopies.checksum(pinned.memory(i)));
                } else {
                    assertThat(pinned.result(i)).isEqualTo(-10);
                }
            }
        }
        assertThat(store.gauges()).containsEntry("kvferry_disk_staging_bytes", 0L);
    }

    @Test
    void findsWhatIsCompleteAfterARestartAndNothingThatWasRemoved() {
        var store = open(config());
        var client = filled(store, 12);
        put(client, "late", 99); // is not written
        assertThat(client.remove("k3", true)).isZero();
        assertThat(client.removeByRegex("k1[01]", true)).isEqualTo(2);
        store = reopen(config());
        client = store.client(ONE);
        for (int i = 0; i < 12; i++) {
            boolean gone = i == 3 || i >= 10;
            assertThat(get(client, "k" + i, i)).as("k" + i).isEqualTo(gone ? -704 : SIZE);
        }
        assertThat(get(client, "late", 99)).isEqualTo(-704);
        assertThat(put(client, "k3", 77)).isZero();
        offload(store);
        client = reopen(config()).client(ONE);
        assertThat(get(client, "k3", 77)).isEqualTo(SIZE);
        assertThat(client.removeAll(true)).isEqualTo(10);
        assertThat(reopen(config()).keyCount()).isZero();
    }

    @Test
    void deletesTheOldestBucketsAboveTheWatermark() throws IOException {
        var store = open(config());
        var client = filled(store, 150); // 1.5 MB, of 1 MiB
        assertThat(diskBytes()).isLessThanOrEqualTo(1 << 20);
        assertThat(get(client, "k0", 0)).isEqualTo(-704);
        assertThat(get(client, "k149", 149)).isEqualTo(SIZE);
        assertThat(store.counters().get("kvferry_disk_buckets_deleted_total")).isPositive();
        long keys = store.keyCount();
        assertThat(keys).isBetween(40L, 64L + 18); // 16 KiB on disk each, or in memory
        assertThat(store.gauges().get("master_allocated_file_size_bytes"))
                .isLessThanOrEqualTo(1L << 20);
    }

    @Test
    void aTierThatDeletesNothingTakesNothingMoreWhenItIsFull() {
        var config = config().withBuckets(64 << 10, 500, BucketEviction.NONE);
        var store = open(config);
        var client = filled(store, 150);
        assertThat(get(client, "k0", 0)).isEqualTo(SIZE);
        assertThat(get(client, "k149", 149)).isEqualTo(SIZE); // still in memory
        assertThat(store.gauges()).containsEntry("kvferry_disk_offload_paused", 1L);
        assertThat(put(client, "another", 1)).isZero();
    }

    @Test
    void lruKeepsWhatIsRead() {
        var store = open(config().withBuckets(30_000, 1, BucketEviction.LRU));
        var client = filled(store, 40);
        assertThat(where(client, "k0")).isEqualTo(ReplicaDescriptor.Tier.LOCAL_DISK);
        for (int i = 40; i < 150; i++) {
            put(client, "k" + i, i);
            offload(store);
            store.tick();
            assertThat(get(client, "k0", 0)).isEqualTo(SIZE);
            pass(Duration.ofSeconds(11)); // no lease keeps it
        }
        assertThat(get(client, "k1", 1)).isEqualTo(-704);
    }

    @Test
    void aLeasedObjectKeepsItsBucket() {
        var store = open(config().withBuckets(30_000, 1, BucketEviction.FIFO));
        var client = filled(store, 40);
        for (int i = 40; i < 150; i++) {
            assertThat(client.size("k0")).isEqualTo(SIZE);
            put(client, "k" + i, i);
            offload(store);
            store.tick();
            pass(Duration.ofMillis(10));
        }
        assertThat(get(client, "k0", 0)).isEqualTo(SIZE);
        assertThat(get(client, "k1", 1)).isEqualTo(-704);
    }

    @Test
    void keepsInMemoryAgainWhatIsReadTwice() {
        var store = open(config().withMoves(false, 2));
        var client = filled(store, 40);
        assertThat(client.remove("k39", true)).isZero(); // room
        assertThat(client.remove("k38", true)).isZero();
        assertThat(client.remove("k37", true)).isZero();
        assertThat(get(client, "k0", 0)).isEqualTo(SIZE);
        assertThat(where(client, "k0")).isEqualTo(ReplicaDescriptor.Tier.LOCAL_DISK);
        assertThat(get(client, "k0", 0)).isEqualTo(SIZE);
        assertThat(where(client, "k0")).isEqualTo(ReplicaDescriptor.Tier.MEMORY);
        assertThat(get(client, "k0", 0)).isEqualTo(SIZE);
        assertThat(store.counters()).containsEntry("master_promotion_completed_total", 1L);
    }

    @Test
    void anUnmountedSegmentLeavesWhatIsOnDisk() {
        var store = open(config());
        var client = filled(store, 5);
        put(client, "memory", 9);
        store.unmount("a");
        assertThat(get(client, "k4", 4)).isEqualTo(SIZE);
        assertThat(get(client, "memory", 9)).isEqualTo(-704);
        assertThat(store.usedBytes()).isZero();
    }

    @Test
    void aDamagedCopyIsAMissFromThenOn() throws IOException {
        var store = open(config());
        var client = filled(store, 40);
        for (Path file : files(".bucket")) {
            try (var channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
                channel.write(ByteBuffer.wrap(new byte[] {-1, -2, -3}), 5000);
            }
        }
        int mismatches = 0;
        for (int i = 0; i < 20; i++) {
            long first = get(client, "k" + i, i);
            mismatches += first == -801 ? 1 : 0;
            assertThat(first == -801 ? get(client, "k" + i, i) : -704).isEqualTo(-704);
        }
        assertThat(mismatches).isPositive();
        assertThat(put(client, "k0", 0)).isZero(); // can be stored anew
        assertThat(get(client, "k0", 0)).isEqualTo(SIZE);
    }

    @Test
    void tornFilesAreDeletedAtTheNextStart() throws IOException {
        var store = open(config());
        filled(store, 12);
        Objects.requireNonNull(stepped).close();
        List<Path> metas = files(".meta");
        assertThat(metas).hasSize(12);
        cut(metas.get(0), Files.size(metas.get(0)) - 1);
        cut(metas.get(1), 0);
        Files.delete(metas.get(2));
        cut(Path.of(metas.get(3).toString().replace(".meta", ".bucket")), 5000);
        Files.delete(Path.of(metas.get(4).toString().replace(".meta", ".bucket")));
        Files.write(metas.get(5).resolveSibling("17.bucket"), new byte[100]);
        store = open(config());
        var client = store.client(ONE);
        for (int i = 0; i < 12; i++) {
            assertThat(get(client, "k" + i, i)).isEqualTo(i < 5 ? -704 : SIZE);
        }
        assertThat(files(".bucket")).hasSize(7);
        assertThat(files(".meta")).hasSize(7);
    }

    @Test
    void filesOfAnotherVersionAreLeftAlone() throws IOException {
        filled(open(config()), 1);
        Objects.requireNonNull(stepped).close();
        Path meta = files(".meta").getFirst();
        byte[] bytes = Files.readAllBytes(meta);
        bytes[4] = 2;
        var crc = new CRC32C();
        crc.update(bytes, 0, bytes.length - 4);
        MemorySegment.ofArray(bytes)
                .set(ValueLayout.JAVA_INT_UNALIGNED, bytes.length - 4, (int) crc.getValue());
        Files.write(meta, bytes);
        assertThatThrownBy(() -> open(config()))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("version 2");
        assertThat(files(".bucket")).hasSize(1);
    }

    @Test
    void aFolderHasOneStoreAtATime() {
        open(config());
        assertThatThrownBy(() ->
                        DiskTier.open(config(), SegmentMemory.PRIVATE, FileCalls.ofPlatform()))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("used by another store");
    }

    @Test
    void aFullDiskStopsOffloadingForAWhileAndComesBack() throws IOException {
        var store = open(config());
        var client = filled(store, 3);
        fault.fail("write", -Errno.ENOSPC);
        for (int i = 3; i < 40; i++) {
            assertThat(put(client, "k" + i, i)).isZero(); // memory goes on
            offload(store);
            store.tick();
        }
        assertThat(store.gauges()).containsEntry("kvferry_disk_offload_paused", 1L);
        assertThat(files(".bucket")).hasSameSizeAs(files(".meta"));
        fault.fail("", 0);
        pass(Duration.ofSeconds(11));
        offload(store);
        assertThat(store.gauges()).containsEntry("kvferry_disk_offload_paused", 0L);
        assertThat(store.counters().get("kvferry_disk_offload_pauses_total")).isPositive();
        assertThat(get(client, "k39", 39)).isEqualTo(SIZE);
        client = reopen(config()).client(ONE);
        assertThat(get(client, "k39", 39)).isEqualTo(SIZE);
    }

    @Test
    void everyFailedCallLeavesAllOrNothing() throws IOException {
        for (String call : List.of("createNew", "write", "syncData", "close", "syncFolder")) {
            for (int nth = 0; nth < 3; nth++) {
                var store = open(config());
                var client = store.client(ONE);
                put(client, call + nth, nth);
                fault.failOnce(call, nth, -Errno.EIO);
                offload(store);
                fault.fail("", 0);
                boolean written =
                        store.counters().getOrDefault("kvferry_disk_offloaded_keys_total", 0L) > 0;
                assertThat(get(client, call + nth, nth)).isEqualTo(SIZE);
                client = reopen(config()).client(ONE);
                assertThat(get(client, call + nth, nth)).isEqualTo(written ? SIZE : -704);
                Objects.requireNonNull(stepped).close();
            }
        }
    }

    @Test
    void aReadThatTheMediumRefusesIsAMissFromThenOn() {
        var store = open(config());
        var client = filled(store, 40);
        fault.fail("read", -Errno.EIO);
        assertThat(get(client, "k0", 0)).isEqualTo(StoreCode.FILE_READ_FAIL.number());
        fault.fail("", 0);
        assertThat(get(client, "k0", 0)).isEqualTo(-704);
        assertThat(get(client, "k1", 1)).isEqualTo(SIZE);
        assertThat(store.counters()).containsEntry("kvferry_disk_read_failures_total", 1L);
    }

    @Test
    void aDiskThatHangsHoldsUpNobodyForLongerThanTheLimit() throws InterruptedException {
        var config =
                config().withIo(
                                DirectIo.OFF,
                                Duration.ZERO,
                                Duration.ofMillis(200),
                                Duration.ofHours(1));
        filled(open(config()), 40);
        var store = reopen(config);
        var client = store.client(ONE);
        var hold = new CountDownLatch(1);
        fault.hold("read", hold);
        try {
            assertThat(get(client, "k0", 0)).isEqualTo(StoreCode.FILE_READ_FAIL.number());
            // From here on nobody even asks it.
            assertThat(get(client, "k1", 1)).isEqualTo(StoreCode.FILE_READ_FAIL.number());
        } finally {
            hold.countDown();
        }
        awaitNoStaging(store);
    }

    @Test
    void aDiskThatHungIsAskedAgainHoweverOftenItIsWanted() throws InterruptedException {
        var config =
                config().withIo(
                                DirectIo.OFF,
                                Duration.ZERO,
                                Duration.ofMillis(200),
                                Duration.ofMillis(500));
        filled(open(config()), 40);
        var client = reopen(config).client(ONE);
        var hold = new CountDownLatch(1);
        fault.hold("read", hold);
        try {
            assertThat(get(client, "k0", 0)).isEqualTo(StoreCode.FILE_READ_FAIL.number());
        } finally {
            hold.countDown();
        }
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (get(client, "k1", 1) != SIZE) { // more often than the pause is long
            assertThat(System.nanoTime() - end).isNegative();
            Thread.sleep(1);
        }
    }

    @Test
    void whereReadsThatHangHaveAllStagingMemoryNobodyWaitsForIt() throws InterruptedException {
        var config =
                config().withIo(
                                DirectIo.OFF,
                                Duration.ZERO,
                                Duration.ofMillis(200),
                                Duration.ofMillis(300));
        filled(open(config()), 40);
        var store = reopen(config);
        var client = store.client(ONE);
        long failed = StoreCode.FILE_READ_FAIL.number();
        var hold = new CountDownLatch(1);
        fault.hold("read", hold);
        try {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            do { // again where a read was given up before its thread had begun with it
                assertThat(System.nanoTime() - end).isNegative();
                try (var pinned = client.pin(List.of("k0", "k1", "k2", "k3", "k4"))) {
                    assertThat(pinned.result(0)).isEqualTo(failed);
                }
            } while (store.gauges().getOrDefault("kvferry_disk_staging_bytes", 0L) < 100L << 10);
            Thread.sleep(400); // the pause is over, and the disk hangs all the same
            var batch = new StoreBatch();
            MemorySegment into = arena.allocate(20L * SIZE);
            for (int i = 0; i < 20; i++) {
                batch.add("k" + i).buffer(into, (long) i * SIZE, SIZE);
            }
            var results = new long[20];
            client.get(batch, results);
            assertThat(results).containsOnly(failed);
            try (var pinned = client.pin(List.of("k5", "k6"))) {
                assertThat(pinned.result(0)).isEqualTo(failed);
                assertThat(pinned.result(1)).isEqualTo(failed);
            }
            assertThat(store.counters()).containsEntry("kvferry_disk_staging_overflows_total", 0L);
        } finally {
            hold.countDown();
        }
        awaitNoStaging(store);
    }

    @Test
    void withoutMemoryToReadThroughAReadFails() {
        var tier =
                DiskTier.open(
                        config(),
                        _ -> {
                            throw new KvFerryException(ErrorCode.NO_MEMORY, "no memory");
                        },
                        calls);
        var made = new SteppedStore(from -> from.withChecksums(true), new SegmentTable(), tier);
        made.store.mount("a", 200_000);
        stepped = made;
        var client = filled(made.store, 40);
        for (int i = 0; i < 10; i++) { // more than the staging memory, were it not given back
            assertThat(get(client, "k0", 0)).isEqualTo(StoreCode.BUFFER_OVERFLOW.number());
        }
        try (var pinned = client.pin(List.of("k0", "k1"))) {
            assertThat(pinned.result(0)).isEqualTo(StoreCode.BUFFER_OVERFLOW.number());
        }
        assertThat(get(client, "k39", 39)).isEqualTo(SIZE); // from memory
    }

    @Test
    void aStoreThatIsClosedLeavesABucketToWhoWritesIt() throws Exception {
        var store = open(config());
        var client = store.client(ONE);
        assertThat(put(client, "k0", 0)).isZero();
        var hold = new CountDownLatch(1);
        fault.hold("write", hold);
        var writing = new FutureTask<>(() -> store.offloads.step(true));
        try {
            calls.log.clear();
            Thread.ofPlatform().daemon().start(writing);
            while (!calls.log.contains("write") && !writing.isDone()) {
                Thread.sleep(1);
            }
            store.close();
        } finally {
            hold.countDown();
        }
        assertThat(writing.get(60, TimeUnit.SECONDS)).isTrue();
        assertThat(store.offloads.step(true)).isFalse();
        open(config());
    }

    @Test
    void anObjectThatDoesNotFitMovesNothingOut() {
        var store =
                open(
                        TierConfig.of(folder.resolve("tier"), 64 << 10)
                                .withIo(
                                        DirectIo.OFF,
                                        Duration.ZERO,
                                        Duration.ofSeconds(60),
                                        Duration.ofSeconds(10)));
        var client = filled(store, 2);
        var results = new int[1];
        client.put(
                new StoreBatch().add("large").buffer(arena.allocate(70_000)),
                PutOptions.DEFAULT,
                results);
        assertThat(results).containsOnly(0);
        offload(store);
        assertThat(store.counters())
                .containsEntry("kvferry_disk_buckets_deleted_total", 0L)
                .containsEntry("kvferry_disk_offloaded_keys_total", 2L);
        assertThat(store.gauges()).containsEntry("kvferry_disk_offload_paused", 0L);
    }

    @Test
    void oneDeletionThatHangsIsEnough() {
        var config =
                config().withIo(
                                DirectIo.OFF,
                                Duration.ZERO,
                                Duration.ofMillis(200),
                                Duration.ofSeconds(10));
        filled(open(config()), 57);
        var store = reopen(config);
        var client = store.client(ONE);
        var hold = new CountDownLatch(1);
        fault.hold("unlink", hold);
        try {
            for (int i = 57; i < 62; i++) {
                assertThat(put(client, "k" + i, i)).isZero();
                offload(store);
            }
            assertThat(store.gauges()).containsEntry("kvferry_disk_offload_paused", 1L);
            // None where the machine is so slow that a write took too long before that.
            assertThat(store.counters().get("kvferry_disk_buckets_deleted_total"))
                    .isLessThanOrEqualTo(1L);
        } finally {
            hold.countDown();
        }
    }

    @Test
    void aWriteThatHangsFreesMemoryAllTheSame() {
        var config =
                config().withMoves(true, 0)
                        .withIo(
                                DirectIo.OFF,
                                Duration.ZERO,
                                Duration.ofMillis(200),
                                Duration.ofSeconds(10));
        var store = open(config);
        var client = store.client(ONE);
        var hold = new CountDownLatch(1);
        fault.hold("write", hold);
        try {
            for (int i = 0; i < 40; i++) {
                assertThat(put(client, "k" + i, i)).isZero();
                store.tick();
                offload(store);
                store.tick();
            }
            assertThat(store.gauges()).containsEntry("kvferry_disk_offload_paused", 1L);
        } finally {
            hold.countDown();
        }
        assertThat(get(client, "k39", 39)).isEqualTo(SIZE);
    }

    private static void awaitNoStaging(EmbeddedStore store) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (store.gauges().getOrDefault("kvferry_disk_staging_bytes", 1L) > 0) {
            assertThat(System.nanoTime() - end).isNegative();
            Thread.sleep(1);
        }
    }

    private List<Path> files(String suffix) throws IOException {
        try (var all = Files.list(folder.resolve("tier"))) {
            return all.filter(file -> file.toString().endsWith(suffix)).sorted().toList();
        }
    }

    private long diskBytes() throws IOException {
        try (var all = Files.list(folder.resolve("tier"))) {
            return all.mapToLong(
                            file -> {
                                try {
                                    return Files.size(file);
                                } catch (IOException e) {
                                    throw new UncheckedIOException(e);
                                }
                            })
                    .sum();
        }
    }

    private static void cut(Path file, long bytes) throws IOException {
        try (var channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
            channel.truncate(bytes);
        }
    }
}
