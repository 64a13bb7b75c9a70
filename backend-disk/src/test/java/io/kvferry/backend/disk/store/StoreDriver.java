// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.disk.FileCalls;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/// Blocking calls on a [BlockStore] for tests, and blocks whose bytes follow from a seed.
final class StoreDriver {
    static final Duration PATIENCE = Duration.ofSeconds(20);

    private final BlockStore store;

    StoreDriver(BlockStore store) {
        this.store = store;
    }

    static StoreConfig config(Path root) {
        return StoreConfig.of(root, "test model, float32, v1")
                .withReserveBytes(0)
                .with(new StoreConfig.Pools(2, 2, 64))
                .with(
                        new StoreConfig.Times(
                                PATIENCE,
                                Duration.ofSeconds(2),
                                Duration.ofMinutes(15),
                                Duration.ofHours(1),
                                Duration.ofMinutes(1)));
    }

    /// The same where each lookup asks the file system.
    static StoreConfig looking(StoreConfig config) {
        return lookingAfter(Duration.ZERO, config);
    }

    /// The same where a lookup asks the file system for what has not been seen for so long.
    static StoreConfig lookingAfter(Duration age, StoreConfig config) {
        var times = config.times();
        return config.with(
                new StoreConfig.Times(
                        times.io(),
                        age,
                        times.tempMaxAge(),
                        times.scanInterval(),
                        times.recency()));
    }

    /// Closes the store before its `try` does, to look at it afterwards.
    @SuppressWarnings("try")
    static void shut(BlockStore store) {
        store.close();
    }

    BlockResult save(BlockKey key, List<MemorySegment> segments) {
        return save(key, segments, PATIENCE);
    }

    BlockResult save(BlockKey key, List<MemorySegment> segments, Duration limit) {
        var done = new CompletableFuture<BlockResult>();
        assertThat(
                        store.save(
                                key,
                                segments,
                                Deadline.in(limit),
                                (_, result) -> done.complete(result),
                                0))
                .isTrue();
        return done.orTimeout(30, TimeUnit.SECONDS).join();
    }

    BlockResult load(BlockKey key, List<MemorySegment> segments) {
        return load(key, segments, PATIENCE);
    }

    BlockResult load(BlockKey key, List<MemorySegment> segments, Duration limit) {
        var done = new CompletableFuture<BlockResult>();
        assertThat(
                        store.load(
                                key,
                                segments,
                                Deadline.in(limit),
                                (_, result) -> done.complete(result),
                                0))
                .isTrue();
        return done.orTimeout(30, TimeUnit.SECONDS).join();
    }

    int locate(List<BlockKey> keys) {
        var done = new CompletableFuture<BlockResult>();
        assertThat(
                        store.locate(
                                keys,
                                Deadline.in(PATIENCE),
                                (_, result) -> done.complete(result),
                                0))
                .isTrue();
        return done.orTimeout(30, TimeUnit.SECONDS).join() instanceof BlockResult.Located(int count)
                ? count
                : -1;
    }

    /// Segments of the given sizes with bytes of this seed.
    static List<MemorySegment> block(long seed, long... sizes) {
        var random = new SplittableRandom(seed);
        return java.util.Arrays.stream(sizes)
                .mapToObj(size -> {
                    var bytes = new byte[Math.toIntExact(size)];
                    random.nextBytes(bytes);
                    return Arena.ofAuto().allocate(size, 64).copyFrom(MemorySegment.ofArray(bytes));
                })
                .toList();
    }

    static List<MemorySegment> empty(long... sizes) {
        return java.util.Arrays.stream(sizes)
                .mapToObj(size -> Arena.ofAuto().allocate(size))
                .toList();
    }

    static boolean same(List<MemorySegment> one, List<MemorySegment> other) {
        for (int i = 0; i < one.size(); i++) {
            if (one.get(i).mismatch(other.get(i)) >= 0) {
                return false;
            }
        }
        return one.size() == other.size();
    }

    static Path file(StoreConfig config, BlockKey key) {
        return StoreFolder.open(config, FileCalls.ofPlatform()).file(key.digest());
    }

    /// The unfinished files.
    static List<Path> temps(StoreConfig config) {
        var folder = StoreFolder.open(config, FileCalls.ofPlatform());
        var found = new ArrayList<Path>();
        for (int i = 0; i < StoreFolder.FOLDERS; i++) {
            try (var files = Files.list(folder.temps(i))) {
                files.forEach(found::add);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
        return found;
    }

    /// That all of the quota that files do not take can be had.
    static void assertReservesNothing(BlockStore store) {
        var catalog = store.core().catalog();
        long rest = store.config().space().quotaBytes() - catalog.usedBytes();
        assertThat(catalog.reserve(rest)).as("nothing is reserved").isTrue();
        catalog.release(rest);
    }

    /// That what the store counts is what is on disk, once it has done evicting in the background.
    static void assertKnowsItsBytes(BlockStore store) {
        long limit = System.nanoTime() + PATIENCE.toNanos();
        long used;
        long onDisk;
        do { // equal once is enough: between two evictions they are, and during the next not
            used = store.stats().usedBytes();
            onDisk = diskBytes(store.config());
        } while (used != onDisk && limit - System.nanoTime() > 0);
        assertThat(used).isEqualTo(onDisk);
    }

    static long diskBytes(StoreConfig config) {
        try (var files = Files.walk(StoreFolder.open(config, FileCalls.ofPlatform()).blocks())) {
            return files.filter(Files::isRegularFile)
                    .mapToLong(file -> file.toFile().length())
                    .sum();
        } catch (UncheckedIOException e) {
            if (e.getCause() instanceof NoSuchFileException) {
                return diskBytes(config); // deleted on the way: once more
            }
            throw e;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
