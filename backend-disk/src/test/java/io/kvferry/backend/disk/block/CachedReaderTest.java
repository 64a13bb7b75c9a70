// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.block;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assumptions.assumeThat;

import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.IoTask;
import io.kvferry.toolkit.disk.PathText;
import io.kvferry.toolkit.disk.space.KeyDigest;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;

/// Blocks that the page cache holds whole.
class CachedReaderTest {
    private static final BlockKey KEY = BlockKey.of("k");
    private static final int SEGMENTS = 5;
    private static final long BYTES = 300_001;

    @TempDir Path folder;

    private final FileCalls calls = FileCalls.ofPlatform();
    private final RecordFormat format =
            new RecordFormat(KeyDigest.ofKey(new byte[0]), FleetKey.NONE);
    private final Arena arena = Arena.ofConfined();
    private final AlignedStaging staging = new AlignedStaging(AlignedStaging.ALIGNMENT);
    private final List<MemorySegment> saved = segments();
    private MemorySegment path = MemorySegment.NULL;

    /// A request that an I/O thread has taken up and that is in its I/O phase.
    private static IoTask request() {
        var task =
                new IoTask() {
                    @Override
                    protected Runnable expiry(boolean inIo) {
                        return () -> {};
                    }

                    @Override
                    protected void clear() {}

                    IoTask begun() {
                        prepared(System.nanoTime() + Duration.ofMinutes(1).toNanos());
                        start();
                        enterIo();
                        return this;
                    }
                };
        return task.begun();
    }

    private List<MemorySegment> segments() {
        return IntStream.range(0, SEGMENTS).mapToObj(_ -> arena.allocate(BYTES)).toList();
    }

    @BeforeEach
    void save() {
        assumeThat(calls.gatherLimit()).as("ranges of a call").isGreaterThan(SEGMENTS);
        var random = new Random(1);
        for (var segment : saved) {
            var bytes = new byte[(int) BYTES];
            random.nextBytes(bytes);
            segment.copyFrom(MemorySegment.ofArray(bytes));
        }
        path = PathText.of(arena, folder.resolve("block"));
        int handle = calls.createNew(path, false);
        assertThat(handle).isNotNegative();
        try (var own = new AlignedStaging(AlignedStaging.ALIGNMENT)) {
            assertThat(
                            new GatherWriter(calls, format, own, arena)
                                    .write(request(), KEY, saved, handle))
                    .isZero();
        } finally {
            calls.close(handle);
        }
    }

    @AfterEach
    void free() {
        staging.close();
        arena.close();
    }

    private boolean load(List<MemorySegment> into) {
        int handle = calls.openRead(path, false);
        assertThat(handle).isNotNegative();
        try {
            assumeThat(calls.cached(handle, 1)).as("the page cache can be asked").isPositive();
            return new CachedReader(calls, format, staging, arena)
                    .load(request(), KEY, into, handle);
        } finally {
            calls.close(handle);
        }
    }

    @Test
    void aFirstLoadTakesNoMemoryForItsPieces() {
        var into = segments();
        assertThat(load(into)).isTrue();
        for (int i = 0; i < SEGMENTS; i++) {
            assertThat(into.get(i).mismatch(saved.get(i))).isEqualTo(-1);
        }
        assertThat(staging.memory().byteSize()).isEqualTo(AlignedStaging.ALIGNMENT);
    }

    @Test
    void unwantedPartsAreCheckedAndGoNowhere() {
        var into = segments();
        for (int unwanted = 0; unwanted < SEGMENTS; unwanted++) {
            into.forEach(segment -> segment.fill((byte) 0));
            int skipped = unwanted;
            var wanted =
                    IntStream.range(0, SEGMENTS)
                            .mapToObj(i -> i == skipped ? into.get(i).asReadOnly() : into.get(i))
                            .toList();
            assertThat(load(wanted)).isTrue();
            for (int i = 0; i < SEGMENTS; i++) {
                var expected = i == skipped ? arena.allocate(BYTES) : saved.get(i);
                assertThat(into.get(i).mismatch(expected)).isEqualTo(-1);
            }
        }
    }
}
