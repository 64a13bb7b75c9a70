// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.RecordingCalls;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// The power is cut after every single change of the files. A bucket that was reported as written
/// is found until its deletion begins, one that was reported as removed is never found again, and
/// nothing has other bytes.
class BucketCrashTest {
    private static final StoreIdentity ONE = new StoreIdentity("", "model", "layout");
    private static final int SIZE = 5000;

    @TempDir Path folder;

    private final Arena arena = Arena.ofShared();
    private final RecordingCalls files = new RecordingCalls(FileCalls.ofPlatform());

    /// Per key the changes between which it must be there.
    private final Map<String, int[]> there = new HashMap<>();

    /// Per key the changes from which on it must not be there.
    private final Map<String, Integer> gone = new HashMap<>();

    @AfterEach
    void close() {
        arena.close();
    }

    private static TierConfig config(Path path) {
        return TierConfig.of(path, 1 << 20)
                .withStaging(64 << 10)
                .withIo(
                        DirectIo.OFF,
                        Duration.ZERO,
                        Duration.ofSeconds(60),
                        Duration.ofSeconds(10));
    }

    private MemorySegment bytes(String key) {
        MemorySegment memory = arena.allocate(SIZE);
        for (int i = 0; i < SIZE; i++) {
            memory.set(ValueLayout.JAVA_BYTE, i, (byte) (key.hashCode() + i * 13 + (i >>> 8)));
        }
        return memory;
    }

    private List<DiskObject> write(DiskTier tier, String... keys) {
        var sources = new ArrayList<BucketSource>();
        for (String key : keys) {
            sources.add(new BucketSource(ONE, key, null, false, bytes(key), false, 0));
        }
        var written = new ArrayList<@Nullable DiskObject>();
        assertThat(tier.write(sources, _ -> true, written)).isZero();
        var objects = new ArrayList<DiskObject>();
        for (DiskObject object : written) {
            if (object != null) {
                objects.add(object);
                there.put(object.key(), new int[] {files.count(), Integer.MAX_VALUE});
            }
        }
        return objects;
    }

    /// An object is to go: its time ends now.
    private void ends(DiskObject object) {
        int[] time = there.get(object.key());
        if (time != null) {
            time[1] = Math.min(time[1], files.count());
        }
    }

    private void remove(DiskTier tier, List<DiskObject> objects) {
        objects.forEach(this::ends);
        objects.forEach(tier::removed);
        assertThat(tier.confirmRemovals()).isZero();
        objects.forEach(object -> gone.put(object.key(), files.count()));
    }

    private void delete(DiskTier tier, List<DiskObject> all) {
        all.forEach(this::ends);
        tier.withdraw(all.getFirst().bucket());
        assertThat(tier.delete(all.getFirst().bucket())).isTrue();
        all.forEach(object -> gone.putIfAbsent(object.key(), files.count()));
    }

    private void verifyAll(RecordingCalls.Unsynced unsynced) throws IOException {
        for (int count = 0; count <= files.count(); count++) {
            verify(count, unsynced);
        }
    }

    @ParameterizedTest
    @EnumSource(RecordingCalls.Unsynced.class)
    void anOlderCopyDoesNotComeBackInPlaceOfARemovedOne(RecordingCalls.Unsynced unsynced)
            throws IOException {
        Path path = folder.resolve("t");
        try (var tier = DiskTier.open(config(path), SegmentMemory.PRIVATE, files)) {
            tier.recover(identity -> identity);
            write(tier, "a", "b");
            write(tier, "a", "c");
        }
        try (var tier = DiskTier.open(config(path), SegmentMemory.PRIVATE, files)) {
            List<DiskObject> found = tier.recover(identity -> identity);
            assertThat(found).hasSize(3);
            remove(tier, found.stream().filter(object -> object.key().equals("a")).toList());
        }
        verifyAll(unsynced);
    }

    @ParameterizedTest
    @EnumSource(RecordingCalls.Unsynced.class)
    void leavesWhatWasCompleteAndNothingElse(RecordingCalls.Unsynced unsynced) throws IOException {
        try (var tier = DiskTier.open(config(folder.resolve("t")), SegmentMemory.PRIVATE, files)) {
            assertThat(tier.recover(identity -> identity)).isEmpty();
            var first = write(tier, "a", "b", "c");
            write(tier, "d");
            remove(tier, List.of(first.get(1)));
            delete(tier, first);
            var third = write(tier, "e", "f");
            remove(tier, List.of(third.getFirst()));
            write(tier, "g");
            remove(tier, write(tier, "h", "i"));
        }
        verifyAll(unsynced);
    }

    private void verify(int count, RecordingCalls.Unsynced unsynced) throws IOException {
        Path left = memory().resolve(folder.getFileName() + "-" + unsynced + "-" + count);
        try {
            files.survive(count, unsynced, folder.resolve("t"), left);
            Files.setPosixFilePermissions(left, PosixFilePermissions.fromString("rwx------"));
            try (var tier =
                    DiskTier.open(config(left), SegmentMemory.PRIVATE, FileCalls.ofPlatform())) {
                var found = new HashMap<String, DiskObject>();
                tier.recover(identity -> identity)
                        .forEach(object -> found.put(object.key(), object));
                there.forEach((key, time) -> {
                    if (count >= time[0] && count <= time[1]) {
                        assertThat(found).as("after change %d", count).containsKey(key);
                    }
                });
                gone.forEach((key, from) -> {
                    if (count >= from) {
                        assertThat(found).as("after change %d", count).doesNotContainKey(key);
                    }
                });
                found.forEach((key, object) -> check(tier, key, object, count));
            }
        } finally {
            delete(left);
        }
    }

    private void check(DiskTier tier, String key, DiskObject object, int count) {
        try (StagedRead read = tier.read(object, true)) {
            assertThat(read).isNotNull();
            if (read != null && read.await() == 0) {
                assertThat(read.value().mismatch(bytes(key))).isEqualTo(-1);
            } else {
                int[] time = there.get(key);
                assertThat(time != null && count >= time[0] && count <= time[1])
                        .as("%s cannot be read after change %d", key, count)
                        .isFalse();
            }
        }
    }

    /// A disk is much slower at making and deleting so many files.
    private Path memory() {
        Path memory = Path.of("/dev/shm");
        return Files.isWritable(memory) ? memory : folder;
    }

    private static void delete(Path path) {
        try (var all = Files.walk(path)) {
            all.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
