// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.util.Objects.requireNonNull;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.spi.Deadline;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/// Trouble that passes does not close the way over shared memory for good.
@SuppressWarnings("NullAway.Init")
class SharedPeerTest {
    private static final String INCARNATION = "0123456789abcdef0123456789abcdef";
    private static final Duration SOON = Duration.ofSeconds(30);

    @TempDir Path folder;
    private final Arena arena = Arena.ofShared();
    private SharedFolder files;
    private SharedOwner owner;

    @BeforeEach
    void open() {
        files = new SharedFolder(folder, INCARNATION);
        owner = SharedOwner.create(folder, INCARNATION, false).orElseThrow();
    }

    @AfterEach
    void close() {
        Thread.interrupted();
        owner.close();
        arena.close();
    }

    private SharedPeer attach() throws IOException {
        return SharedPeer.attach(folder, INCARNATION, false).orElseThrow();
    }

    @Test
    void anInterruptedThreadAttachesAndMaps() throws IOException {
        var memory = owner.allocate(1 << 20, Access.OPEN, arena).orElseThrow().memory();
        Thread.currentThread().interrupt();
        try (var peer = attach()) {
            assertThat(Thread.currentThread().isInterrupted()).isTrue();
            var region = SharedRegions.find(peer.regions().current(), memory.address(), 4096);
            assertThat(Thread.interrupted()).isTrue();
            mapped(region).set(ValueLayout.JAVA_BYTE, 77, (byte) 5);
            assertThat(memory.get(ValueLayout.JAVA_BYTE, 77)).isEqualTo((byte) 5);
        }
    }

    /// The owner has mapped it too, in the same process.
    @Test
    void whatAPeerSharesIsMappedAndTouchedBeforeTheFirstCopy() throws Exception {
        long bytes = 64 << 20;
        var file = owner.allocate(bytes, Access.OPEN, arena).orElseThrow().file();
        try (var peer = attach()) {
            assertThat(resident(file)).containsExactly(bytes);
            peer.mapAhead();
            var limit = Deadline.in(SOON);
            while (!resident(file).equals(List.of(bytes, bytes))) { // in the background
                assertThat(limit.passed()).as("%s", resident(file)).isFalse();
                Thread.sleep(10);
            }
        }
    }

    /// The pages of a deleted file stay with the host as long as anybody has it mapped, and a
    /// process that allocates little collects seldom.
    @Test
    void theMemoryOfAClosedPeerIsUnmapped() throws Exception {
        long bytes = 64 << 20;
        var file = owner.allocate(bytes, Access.OPEN, arena).orElseThrow().file();
        try (var peer = attach()) {
            peer.mapAhead();
            assertThat(resident(file)).hasSize(2);
        }
        awaitMappings(1, file);
    }

    @Test
    void memoryThatAPeerSharesNoMoreIsUnmapped() throws Exception {
        var old = owner.allocate(1 << 20, Access.OPEN, arena).orElseThrow();
        try (var peer = attach()) {
            peer.mapAhead();
            assertThat(resident(old.file())).hasSize(2);
            owner.close(old, false, Duration.ofMillis(1));
            peer.follow();
            awaitMappings(1, old.file());
        }
    }

    @Test
    void aCopyThatIsUnderWayEndsBeforeItsMemoryIsUnmapped() throws Exception {
        var old = owner.allocate(1 << 20, Access.OPEN, arena).orElseThrow();
        long address = old.memory().address();
        try (var peer = attach()) {
            var marks = peer.marks();
            int copying = marks.enter();
            marks.announce(copying);
            var far = mapped(SharedRegions.find(peer.regions().current(), address, 4096));
            owner.close(old, false, Duration.ofMillis(1));
            peer.follow();
            Thread.sleep(50);
            far.fill((byte) 4);

            marks.announce(copying); // its next piece
            awaitMappings(1, old.file());
            marks.exit(copying);
        }
    }

    @Test
    void aWaitForAnnouncedCopiesEndsWithTheirNextPiece() throws Exception {
        try (var peer = attach()) {
            var marks = peer.marks();
            int copying = marks.enter();
            marks.announce(copying);
            assertThat(marks.awaitAnnounced(Deadline.in(Duration.ofMillis(5)))).isFalse();
            var over = new AtomicBoolean();
            var pieces =
                    CompletableFuture.runAsync(() -> {
                        while (!over.get()) {
                            marks.announce(copying);
                            LockSupport.parkNanos(1_000_000);
                        }
                    });
            assertThat(marks.awaitAnnounced(Deadline.in(SOON))).isTrue();
            over.set(true);
            pieces.get(30, TimeUnit.SECONDS);
            marks.exit(copying);
            assertThat(marks.awaitAnnounced(Deadline.in(SOON))).isTrue();
        }
    }

    private void awaitMappings(int count, Path file) throws Exception {
        var limit = Deadline.in(SOON);
        while (resident(file).size() != count) {
            assertThat(limit.passed()).as("%s", resident(file)).isFalse();
            Thread.sleep(10);
        }
    }

    /// Bytes of each mapping of a file, which may be deleted, whose pages are mapped.
    private List<Long> resident(Path file) throws IOException {
        var found = new ArrayList<Long>();
        boolean within = false;
        var name = folder.toRealPath() + "/" + file.getFileName();
        for (String line : Files.readAllLines(Path.of("/proc/self/smaps"))) {
            if (line.matches("[0-9a-f]+-[0-9a-f]+ .*")) {
                within = line.contains(name);
            } else if (within && line.startsWith("Rss:")) {
                found.add(Long.parseLong(line.replaceAll("\\D", "")) << 10);
            }
        }
        return found;
    }

    private static MemorySegment mapped(SharedRegions.@Nullable Mapped region) {
        return requireNonNull(requireNonNull(region).memory());
    }

    @Test
    void anInterruptedThreadOpensAnOwnerAndTakesMemory() {
        var other = "f" + INCARNATION.substring(1);
        Thread.currentThread().interrupt();
        try (var opened = SharedOwner.create(folder, other, false).orElseThrow()) {
            assertThat(Thread.currentThread().isInterrupted()).isTrue();
            assertThat(opened.offer(1 << 20, arena)).isPresent();
            assertThat(opened.allocate(1 << 20, Access.OPEN, arena)).isPresent();
            assertThat(Thread.interrupted()).isTrue();
        }
    }

    /// As when no file handle is left.
    @Test
    void aRegionThatCouldNotBeMappedIsTriedAgain() throws IOException {
        var pages = owner.allocate(1 << 20, Access.OPEN, arena).orElseThrow();
        long address = pages.memory().address();
        var aside = folder.resolve("aside");
        try (var peer = attach()) {
            Files.move(pages.file(), aside);
            assertThat(SharedRegions.find(peer.regions().current(), address, 4096)).isNull();
            Files.move(aside, pages.file());
            var limit = Deadline.in(SOON);
            while (SharedRegions.find(peer.regions().current(), address, 4096) == null) {
                assertThat(limit.passed()).isFalse();
                Thread.onSpinWait();
            }
        }
    }

    @Test
    void anAttachmentThatFailsKeepsNoPlace() throws IOException {
        var aside = folder.resolve("aside");
        Files.move(files.control(), aside);
        Files.createDirectory(files.control()); // opening it fails
        for (int i = 0; i <= ControlPage.USERS; i++) {
            assertThatThrownBy(this::attach).isInstanceOf(IOException.class);
        }
        Files.delete(files.control());
        Files.move(aside, files.control());
        attach().close();
    }

    /// There are few places, and the process may live for long.
    @Test
    void aCopyThatOutlastsItsPeerGivesThePlaceBackWhenItEnds() throws IOException {
        for (int i = 0; i <= ControlPage.USERS; i++) {
            var peer = attach();
            int copying = peer.marks().enter();
            peer.close(Duration.ofMillis(1));
            peer.marks().exit(copying);
        }
    }

    @Test
    void aPeerThatIsBeingCopiedToIsNotLetGoOf() throws IOException {
        try (var peer = attach()) {
            int copying = peer.marks().enter();
            assertThat(peer.closeIfIdle()).isFalse();
            peer.marks().exit(copying);
            assertThat(peer.closeIfIdle()).isTrue();
            assertThat(peer.marks().enter()).isNegative();
        }
    }

    @Test
    void aPeerForWhomNoPlaceIsLeftIsToldSo() throws IOException {
        try (var locks = SharedLocks.open(files.users())) {
            for (int user = 0; user < ControlPage.USERS; user++) {
                assertThat(locks.take(user)).isPresent();
            }
            assertThatThrownBy(this::attach)
                    .isInstanceOf(IOException.class)
                    .hasMessageContaining("taken");
        }
    }
}
