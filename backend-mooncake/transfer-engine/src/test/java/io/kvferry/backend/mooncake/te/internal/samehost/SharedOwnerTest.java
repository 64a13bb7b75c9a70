// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.util.Objects.requireNonNull;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.memory.AvailableMemory;
import io.kvferry.toolkit.memory.HostPages;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;

/// Whom the end of a capability waits for, with this process as its own user.
class SharedOwnerTest {
    private static final String INCARNATION = "0123456789abcdef0123456789abcdef";
    private static final Extents SOME = Extents.of(1 << 20, 4096);
    private static final Duration SHORT = Duration.ofMillis(50);

    private static final AvailableMemory PLENTY =
            new AvailableMemory(Long.MAX_VALUE, "memory of a test");

    @TempDir Path folder;

    @Test
    void closingAGrantWaitsForCopiesUnderThatGrantOnly() throws IOException {
        var files = new SharedFolder(folder, INCARNATION);
        try (var owner = SharedOwner.create(folder, INCARNATION, false).orElseThrow();
                var arena = Arena.ofShared();
                var locks = SharedLocks.open(files.users());
                var lock = locks.take(0).orElseThrow(); // so that user 0 counts as alive
                var file = FileChannel.open(files.control(), READ_WRITE)) {
            assertThat(lock.isValid()).isTrue();
            var page = ControlPage.open(file, files.control(), INCARNATION, arena);
            int first = owner.openGrant(11, SOME);
            int second = owner.openGrant(12, SOME);
            var marks = new CopyMarks(page, 0);
            int mark = marks.enter();
            marks.announce(mark);
            assertTimesOut(owner, first); // it may be under any of them
            marks.under(mark, second);
            owner.closeGrant(first, SOME, SHORT);
            marks.announce(mark); // the next call of the same copy
            assertTimesOut(owner, second);
            marks.exit(mark);
            owner.closeGrant(second, SOME, SHORT);

            // The mark is used again, under nothing that is known yet.
            int third = owner.openGrant(13, SOME);
            mark = marks.enter();
            marks.announce(mark);
            assertTimesOut(owner, third);
            marks.exit(mark);
            owner.closeGrant(third, SOME, SHORT);
        }
    }

    /// The next user takes the lock of one that has ended as soon as it is free.
    @Test
    void theAnnouncementOfTheNextUserOfAMarkStays() throws Exception {
        var files = new SharedFolder(folder, INCARNATION);
        try (var owner = SharedOwner.create(folder, INCARNATION, false).orElseThrow();
                var arena = Arena.ofShared();
                var locks = SharedLocks.open(files.users());
                var file = FileChannel.open(files.control(), READ_WRITE)) {
            var page = ControlPage.open(file, files.control(), INCARNATION, arena);
            for (int round = 1; round <= 25; round++) {
                long left = 2L * round;
                page.setWord(0, 0, left); // by one that has ended
                var next =
                        CompletableFuture.supplyAsync(() -> announceWhenCleared(locks, page, left));
                int grant = owner.openGrant(round, SOME);
                owner.closeGrant(grant, SOME, Duration.ofSeconds(30));
                assertThat(next.get(30, TimeUnit.SECONDS)).isEqualTo(left + 1);
            }
        }
    }

    /// Waits until the owner has taken the lock, then takes it itself.
    ///
    /// @return what its announcement has become
    private static long announceWhenCleared(SharedLocks locks, ControlPage page, long left) {
        try {
            boolean seen = false;
            while (true) {
                Optional<FileLock> lock = locks.take(0);
                if (lock.isEmpty()) {
                    seen = true;
                    continue;
                }
                if (seen || page.word(0, 0) == 0) {
                    page.setWord(0, 0, left + 1);
                    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
                    long now = page.word(0, 0);
                    page.setWord(0, 0, 0);
                    lock.get().release();
                    return now;
                }
                lock.get().release();
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /// A copy that began under the first registration goes on with what it knows of it.
    @Test
    void memoryThatIsRegisteredAnewIsAnotherRegion() throws IOException {
        var files = new SharedFolder(folder, INCARNATION);
        try (var owner = owner(PLENTY, HostPages::mapAhead);
                var arena = Arena.ofShared();
                var file = FileChannel.open(files.control(), READ_WRITE)) {
            var page = ControlPage.open(file, files.control(), INCARNATION, arena);
            var regions = new SharedRegions(files, page, new CopyMarks(page, 0));
            var memory = owner.offer(1 << 20, arena).orElseThrow();
            int slot = owner.open(memory, Access.OPEN);
            var job = new Copy(regions.current());
            var region = SameHostCopier.check(job, page, null, 0, memory.address(), 4096);
            assertThat(region.bytes()).isEqualTo(1 << 20);

            owner.unlist(slot, SHORT);
            var half = memory.asSlice(1 << 19);
            assertThat(owner.open(half, Access.GRANTED)).isEqualTo(slot);
            assertRefused(job, page, memory.address());
            assertRefused(job, page, half.address());

            var next = SharedRegions.find(regions.current(), half.address(), 4096);
            var mapped = requireNonNull(requireNonNull(next).memory());
            mapped.fill((byte) 5);
            assertThat(half.get(ValueLayout.JAVA_BYTE, 77)).isEqualTo((byte) 5);
            assertThat(memory.get(ValueLayout.JAVA_BYTE, 77)).isZero();
        }
    }

    private static void assertRefused(Copy job, ControlPage page, long address) {
        assertThatThrownBy(() -> SameHostCopier.check(job, page, null, 0, address, 4096))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.PEER_REFUSED));
    }

    /// A copy under no capability.
    private record Copy(SharedRegions.Mapped[] table) implements SameHostCopier.Job {
        @Override
        public boolean write() {
            return true;
        }

        @Override
        public int grant() {
            return -1;
        }

        @Override
        public long token() {
            return 0;
        }

        @Override
        public void requireGoingOn() {}

        @Override
        public void announce(int mark) {}

        @Override
        public void touched() {}

        @Override
        public void failedAt(int range) {}
    }

    private static final java.util.Set<java.nio.file.StandardOpenOption> READ_WRITE =
            java.util.Set.of(
                    java.nio.file.StandardOpenOption.READ, java.nio.file.StandardOpenOption.WRITE);

    private static void assertTimesOut(SharedOwner owner, int slot) {
        assertThatThrownBy(() -> owner.closeGrant(slot, SOME, SHORT))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
    }

    @Test
    void takesNoMemoryThatItsControlGroupDoesNotPermit() {
        var permitted = new AvailableMemory((1 << 20) - 1, "memory of a test");
        try (var owner = owner(permitted, HostPages::mapAhead);
                var arena = Arena.ofShared()) {
            assertThat(owner.offer(1 << 20, arena)).isEmpty();
            assertThat(owner.allocate(1 << 20, Access.OPEN, arena)).isEmpty();
            assertThat(owner.offer(permitted.bytes(), arena)).isPresent();
        }
    }

    enum Trouble {
        NO_ROOM,
        INTERRUPTED,
        EXCEPTION
    }

    @ParameterizedTest
    @EnumSource
    void whatCouldNotBeTakenKeepsNoPages(Trouble trouble) throws IOException {
        // A second name of the file shows what becomes of its pages.
        var kept = folder.resolve("kept");
        var file = new SharedFolder(folder, INCARNATION).region(1);
        Function<MemorySegment, HostPages.Mapped> pages =
                memory -> {
                    if (Files.exists(kept)) {
                        return HostPages.Mapped.ALL; // the next try
                    }
                    link(kept, file);
                    memory.asSlice(0, 64 << 10).fill((byte) 1);
                    return switch (trouble) {
                        case NO_ROOM -> HostPages.Mapped.NO_ROOM;
                        case INTERRUPTED -> {
                            Thread.currentThread().interrupt();
                            yield HostPages.Mapped.UNSUPPORTED;
                        }
                        case EXCEPTION -> throw new UnsupportedOperationException("of a test");
                    };
                };
        try (var owner = owner(PLENTY, pages);
                var arena = Arena.ofShared()) {
            if (trouble == Trouble.EXCEPTION) {
                assertThatThrownBy(() -> owner.offer(1 << 20, arena))
                        .isInstanceOf(UnsupportedOperationException.class);
            } else {
                assertThat(owner.offer(1 << 20, arena).isPresent())
                        .isEqualTo(trouble == Trouble.INTERRUPTED);
            }
            assertThat(Thread.interrupted()).isEqualTo(trouble == Trouble.INTERRUPTED);
            assertThat(Files.exists(file)).isEqualTo(trouble == Trouble.INTERRUPTED);
            assertThat(kept).isEmptyFile();
        }
    }

    private static void link(Path link, Path file) {
        try {
            Files.createLink(link, file);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private SharedOwner owner(
            AvailableMemory available, Function<MemorySegment, HostPages.Mapped> pages) {
        return SharedOwner.create(folder, INCARNATION, false, () -> available, pages).orElseThrow();
    }

    @Test
    void placesForExtentsAreHandedOutOnceAndComeBack() {
        var places = new Runs(64);
        int one = places.take(17);
        int two = places.take(16);
        assertThat(one).isZero();
        assertThat(two).isEqualTo(32);
        assertThat(places.take(17)).isEqualTo(-1);
        assertThat(places.take(1)).isEqualTo(48);
        assertThat(places.take(1)).isEqualTo(-1);
        places.give(one, 17);
        assertThat(places.take(32)).isZero();
    }
}
