// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static io.kvferry.backend.disk.store.StoreDriver.block;
import static io.kvferry.backend.disk.store.StoreDriver.empty;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assumptions.assumeThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.block.GatherWriter;
import io.kvferry.backend.disk.block.PieceReader;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.PathText;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// Blocks that are written, or read, checked and copied, piece by piece.
class PieceTest {
    private static final long PIECE = PieceReader.PIECE_BYTES;
    private static final long WRITTEN = GatherWriter.PIECE_BYTES;
    private static final BlockKey KEY = BlockKey.of("k");

    @TempDir Path root;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());

    private BlockStore open() {
        return BlockStore.open(
                StoreDriver.config(root).withMedium(Durability.NONE, DirectIo.OFF),
                StoreListener.NONE,
                calls);
    }

    @ParameterizedTest
    @ValueSource(
            longs = {
                PIECE - 4096,
                PIECE,
                PIECE + 1,
                2 * PIECE,
                2 * PIECE + 4095,
                3 * PIECE - 5000,
                WRITTEN - 4096,
                WRITTEN,
                WRITTEN + WRITTEN / 4,
                WRITTEN + WRITTEN / 4 + 1,
                2 * WRITTEN + 5000
            })
    void loadsWhatWasSaved(long bytes) {
        try (var store = open()) {
            var driver = new StoreDriver(store);
            for (long mostPerCall : new long[] {Long.MAX_VALUE, 99_999}) {
                calls.mostPerCall = mostPerCall;
                for (int segments : new int[] {1, 3, 700}) {
                    var sizes = new long[segments];
                    Arrays.fill(sizes, bytes / segments);
                    sizes[0] += bytes % segments;
                    var key = BlockKey.of("k" + segments + "-" + mostPerCall);
                    var saved = block(segments, sizes);
                    var loaded = empty(sizes);
                    assertThat(driver.save(key, saved)).isEqualTo(BlockResult.Done.STORED);
                    assertThat(driver.load(key, loaded)).isEqualTo(BlockResult.Done.LOADED);
                    assertThat(StoreDriver.same(saved, loaded)).isTrue();
                }
            }
        }
    }

    /// Some pieces are in the page cache, some in part, and some are not.
    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5, 6, 7, 8})
    void loadsWhatWasSavedFromCacheAndMedium(long seed) {
        var random = new Random(seed);
        try (var store = open()) {
            var driver = new StoreDriver(store);
            calls.hook =
                    (call, _) -> {
                        if (!call.equals("readCached")) {
                            return 0;
                        }
                        calls.mostPerCall =
                                random.nextBoolean() ? Long.MAX_VALUE : random.nextInt(1, 20_000);
                        return random.nextInt(8) == 0 ? -Errno.EAGAIN : 0;
                    };
            for (int i = 0; i < 30; i++) {
                var sizes = new long[random.nextInt(1, 40)];
                Arrays.setAll(sizes, _ -> random.nextInt(random.nextInt(1, (int) PIECE)));
                var key = BlockKey.of("k" + i);
                var saved = block(i, sizes);
                var loaded = empty(sizes);
                var target = new ArrayList<>(loaded);
                for (int at = 0; at < sizes.length; at++) {
                    if (random.nextInt(10) == 0) {
                        target.set(at, loaded.get(at).asReadOnly());
                    }
                }
                assertThat(driver.save(key, saved)).isEqualTo(BlockResult.Done.STORED);
                for (int at = 0; at < sizes.length; at++) {
                    if (target.get(at).isReadOnly()) {
                        saved.get(at).fill((byte) 0); // as it stays there
                    }
                }
                assertThat(driver.load(key, target)).isEqualTo(BlockResult.Done.LOADED);
                assertThat(StoreDriver.same(saved, loaded)).isTrue();
            }
        }
    }

    /// What lies side by side is moved as one range, and the file does not say how its memory was
    /// divided.
    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5, 6, 7, 8})
    void loadsWhatWasSavedFromOtherSegments(long seed) {
        var random = new Random(seed);
        calls.gatherLimit = random.nextInt(GatherWriter.LEAST_RANGES, 40);
        try (var store = open()) {
            var driver = new StoreDriver(store);
            calls.hook =
                    (call, _) ->
                            call.equals("readCached") && random.nextInt(8) == 0 ? -Errno.EAGAIN : 0;
            for (int i = 0; i < 30; i++) {
                long bytes = random.nextLong(1, 3 * WRITTEN);
                var saved = block(i, bytes).getFirst();
                var loaded = empty(bytes).getFirst();
                var key = BlockKey.of("k" + i);
                var target = new ArrayList<MemorySegment>();
                var holes = new ArrayList<MemorySegment>();
                for (var part : divided(loaded, random)) {
                    boolean unwanted = random.nextInt(10) == 0;
                    target.add(unwanted ? part.asReadOnly() : part);
                    if (unwanted) {
                        holes.add(
                                saved.asSlice(part.address() - loaded.address(), part.byteSize()));
                    }
                }
                calls.mostPerCall =
                        random.nextBoolean() ? Long.MAX_VALUE : random.nextInt(1000, 200_000);
                var source =
                        divided(saved, random).stream()
                                .map(part -> random.nextInt(3) == 0 ? copy(part) : part)
                                .toList();
                assertThat(driver.save(key, source)).isEqualTo(BlockResult.Done.STORED);
                holes.forEach(hole -> hole.fill((byte) 0)); // as it stays there
                assertThat(driver.load(key, target)).isEqualTo(BlockResult.Done.LOADED);
                assertThat(saved.mismatch(loaded)).isEqualTo(-1);
            }
        }
    }

    /// Parts of this memory in its order.
    private static List<MemorySegment> divided(MemorySegment memory, Random random) {
        var parts = new ArrayList<MemorySegment>();
        for (long at = 0; at < memory.byteSize(); ) {
            long left = memory.byteSize() - at;
            long length = Math.min(left, random.nextLong(1, Math.max(2, memory.byteSize() / 20)));
            parts.add(memory.asSlice(at, length));
            at += length;
        }
        return parts;
    }

    private static MemorySegment copy(MemorySegment part) {
        return empty(part.byteSize()).getFirst().copyFrom(part);
    }

    /// A call takes three ranges here, the header's among them.
    @Test
    void whatLiesSideBySideIsOneRangeOfACall() {
        calls.gatherLimit = GatherWriter.LEAST_RANGES;
        try (var store = open()) {
            var memory = block(1, WRITTEN).getFirst();
            var parts = new ArrayList<MemorySegment>();
            for (long at = 0; at < WRITTEN; at += 1024) {
                parts.add(memory.asSlice(at, 1024));
            }
            calls.log.clear();
            new StoreDriver(store).save(KEY, parts);
            assertThat(calls.log).filteredOn("write"::equals).hasSize(1);
        }
    }

    @Test
    void whatThePageCacheHoldsGoesToTheTargetWithoutACallThatWaits() {
        try (var store = open()) {
            var driver = new StoreDriver(store);
            driver.save(KEY, block(1, 3 * PIECE));
            assumeThat(readsWhatIsCached(StoreDriver.file(store.config(), KEY)))
                    .as("Linux 6.5 and a file system that can read what is cached alone")
                    .isTrue();
            calls.log.clear();
            assertThat(driver.load(KEY, empty(3 * PIECE))).isEqualTo(BlockResult.Done.LOADED);
            assertThat(calls.log).doesNotContain("read");
            assertThat(calls.log).filteredOn("readCached"::equals).hasSize(4); // and the header
        }
    }

    private static boolean readsWhatIsCached(Path file) {
        var platform = FileCalls.ofPlatform();
        try (var arena = Arena.ofConfined()) {
            int handle = platform.openRead(PathText.of(arena, file), false);
            var range = arena.allocate(ValueLayout.JAVA_LONG, 2);
            range.setAtIndex(ValueLayout.JAVA_LONG, 0, arena.allocate(1).address());
            range.setAtIndex(ValueLayout.JAVA_LONG, 1, 1);
            boolean reads =
                    platform.cached(handle, 1) == 1
                            && platform.scatterCached(handle, range, 1, 0) == 1;
            platform.close(handle);
            return reads;
        }
    }

    @Test
    void aPlatformThatCannotTellWhatIsCachedIsAskedOnce() {
        try (var store = open()) {
            var driver = new StoreDriver(store);
            calls.hook = (call, _) -> call.equals("cached") ? -Errno.ENOSYS : 0;
            var saved = block(1, 3 * PIECE);
            driver.save(KEY, saved);
            for (int i = 0; i < 100; i++) {
                var loaded = empty(3 * PIECE);
                assertThat(driver.load(KEY, loaded)).isEqualTo(BlockResult.Done.LOADED);
                assertThat(StoreDriver.same(saved, loaded)).isTrue();
            }
            assertThat(calls.log)
                    .filteredOn("cached"::equals)
                    .hasSizeBetween(1, StoreConfig.Pools.MOST_THREADS);
        }
    }

    @Test
    void aBlockOfOtherSizeIsLeftAloneAlsoInThePageCache() {
        try (var store = open()) {
            var driver = new StoreDriver(store);
            driver.save(KEY, block(1, 1_000_000));
            assertThat(driver.load(KEY, empty(500_000, 500_001)))
                    .matches(result -> result.failedWith(ErrorCode.INCOMPATIBLE));
            assertThat(StoreDriver.file(store.config(), KEY)).exists();
        }
    }

    /// A checksum of memory that the caller changes meanwhile says nothing of the file.
    @Test
    void aBlockIsNotDamagedByATargetThatIsGivenTwice() {
        try (var store = open()) {
            var driver = new StoreDriver(store);
            var saved = block(1, PIECE, PIECE);
            driver.save(KEY, saved);
            var target = empty(PIECE).getFirst();
            assertThat(driver.load(KEY, List.of(target, target)))
                    .isEqualTo(BlockResult.Done.LOADED);
            assertThat(target.mismatch(saved.getLast())).isNegative();
            assertThat(StoreDriver.file(store.config(), KEY)).exists();
        }
    }

    @Test
    void memoryThatIsGoneGetsNothing() {
        try (var store = open()) {
            var driver = new StoreDriver(store);
            driver.save(KEY, block(1, 3 * PIECE));
            List<MemorySegment> gone;
            try (var arena = Arena.ofShared()) {
                gone = List.of(arena.allocate(3 * PIECE));
            }
            assertThat(driver.load(KEY, gone)).isInstanceOf(BlockResult.Failed.class);
            assertThat(driver.load(KEY, empty(3 * PIECE))).isEqualTo(BlockResult.Done.LOADED);
        }
    }

    /// Their end is that of a piece, and of the file.
    @Test
    void savesEmptySegmentsBehindTheLastByte() {
        try (var store = open()) {
            var driver = new StoreDriver(store);
            long[] sizes = {2 * WRITTEN - 4096, 0, 0};
            var saved = block(1, sizes);
            var loaded = empty(sizes);
            assertThat(driver.save(KEY, saved)).isEqualTo(BlockResult.Done.STORED);
            assertThat(driver.load(KEY, loaded)).isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(saved, loaded)).isTrue();
        }
    }

    @Test
    void writesABlockAndItsHeaderWithOneCallIfTheyAreLittleMoreThanAPiece() {
        try (var store = open()) {
            var driver = new StoreDriver(store);
            calls.log.clear();
            driver.save(KEY, block(1, WRITTEN / 2, WRITTEN / 2));
            assertThat(calls.log).filteredOn("write"::equals).hasSize(1);
        }
    }

    /// The header that goes ahead of a block of several pieces does not fit it.
    @Test
    void noReaderAcceptsABlockBeforeItsLastWrite() throws Exception {
        long bytes = 3 * WRITTEN;
        try (var store = open()) {
            var driver = new StoreDriver(store);
            var unfinished = new ArrayList<byte[]>();
            calls.hook =
                    (call, _) -> {
                        if (call.equals("write")) {
                            unfinished.add(temporary(store));
                        }
                        return 0;
                    };
            assertThat(driver.save(KEY, block(1, bytes))).isEqualTo(BlockResult.Done.STORED);
            calls.hook = (_, _) -> 0;
            var file = StoreDriver.file(store.config(), KEY);
            assertThat(unfinished).hasSize(4);
            assertThat(unfinished.getLast()).hasSize((int) Files.size(file));
            for (byte[] content : unfinished) {
                Files.write(file, content);
                assertThat(driver.load(KEY, empty(bytes)).failedWith(ErrorCode.CORRUPT)).isTrue();
            }
        }
    }

    private static byte[] temporary(BlockStore store) {
        try {
            return Files.readAllBytes(StoreDriver.temps(store.config()).getFirst());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Test
    void leavesOutWhatIsNotWanted() {
        try (var store = open()) {
            var driver = new StoreDriver(store);
            var saved = block(3, PIECE, 1000, PIECE);
            driver.save(KEY, saved);
            var wanted = empty(PIECE, 1000, PIECE);
            var unwanted = empty(1000);
            var target =
                    Arrays.asList(wanted.get(0), unwanted.getFirst().asReadOnly(), wanted.get(2));
            assertThat(driver.load(KEY, target)).isEqualTo(BlockResult.Done.LOADED);
            assertThat(wanted.get(0).mismatch(saved.get(0))).isNegative();
            assertThat(wanted.get(2).mismatch(saved.get(2))).isNegative();
            assertThat(unwanted.getFirst().toArray(ValueLayout.JAVA_BYTE)).containsOnly(0);
        }
    }

    @Test
    void refusesAChangedByteInAnyPieceAndACutAtAnyPlace() throws Exception {
        try (var store = open()) {
            var driver = new StoreDriver(store);
            long bytes = 3 * PIECE + 5000;
            for (long at : new long[] {30, 4096, PIECE, 2 * PIECE + 77, 3 * PIECE + 8000}) {
                assertThat(driver.save(KEY, block(1, bytes))).isEqualTo(BlockResult.Done.STORED);
                var file = StoreDriver.file(store.config(), KEY);
                byte[] content = Files.readAllBytes(file);
                content[(int) at] ^= 1;
                Files.write(file, content);
                assertThat(driver.load(KEY, empty(bytes)).failedWith(ErrorCode.CORRUPT))
                        .as("changed at %d", at)
                        .isTrue();
                assertThat(file).doesNotExist();
                assertThat(driver.save(KEY, block(1, bytes))).isEqualTo(BlockResult.Done.STORED);
                Files.write(file, Arrays.copyOf(content, (int) at));
                assertThat(driver.load(KEY, empty(bytes)).failedWith(ErrorCode.CORRUPT))
                        .as("cut at %d", at)
                        .isTrue();
                assertThat(file).doesNotExist();
            }
        }
    }

    /// The first read is the header's.
    @ParameterizedTest
    @ValueSource(ints = {2, 3})
    void neverWritesToTheTargetOnceTheDeadlineHasPassedBetweenTwoPieces(int hanging)
            throws Exception {
        var hang = new CountDownLatch(1);
        try (var store = open()) {
            var driver = new StoreDriver(store);
            driver.save(KEY, block(1, 3 * PIECE));
            var reads = new int[1];
            calls.hook =
                    (call, _) -> {
                        if (call.equals("read") && ++reads[0] == hanging) {
                            await(hang);
                        }
                        return call.equals("readCached") ? -Errno.EAGAIN : 0;
                    };
            var target = empty(3 * PIECE);
            assertThat(
                            driver.load(KEY, target, Duration.ofMillis(200))
                                    .failedWith(ErrorCode.TIMEOUT))
                    .isTrue();
            target.getFirst().fill((byte) 0x55); // the caller uses its memory again
            hang.countDown();
            StoreDriver.shut(store);
            assertThat(target.getFirst().toArray(ValueLayout.JAVA_BYTE)).containsOnly(0x55);
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            assertThat(latch.await(30, TimeUnit.SECONDS)).isTrue();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
