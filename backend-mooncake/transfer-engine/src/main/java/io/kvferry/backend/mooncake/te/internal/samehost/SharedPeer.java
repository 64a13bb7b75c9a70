// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.Uninterrupted;
import io.kvferry.toolkit.crossmemory.PeerProcess;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;

/// The using side of the same-host path: a peer's shared regions, mapped into this process, and
/// where the kernel permits it the peer's own memory, see [SameHostTransfer]. See [ControlPage] for
/// how a copy and the end of a region or capability exclude each other.
///
/// Threading: any thread; at most [ControlPage#MARKS] copies at a time, more go through the socket.
public final class SharedPeer implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(SharedPeer.class);

    /// Longest wait for copies before their memory is unmapped.
    static final Duration LAST_COPY = Duration.ofSeconds(10);

    private final SharedFolder folder;
    private final SharedLocks ownerLocks;
    private final SharedLocks locks;
    private final FileLock lock;
    private final ControlPage control;
    private final CopyMarks marks;
    private final SharedRegions regions;
    private final Optional<PeerProcess> process;
    private final @Nullable MappedCopier[] mapped = new @Nullable MappedCopier[ControlPage.MARKS];
    private final @Nullable CmaCopier[] copiers = new @Nullable CmaCopier[ControlPage.MARKS];

    /// Whether a transfer went this way since the last look.
    private volatile boolean used;

    /// Whether its place has been given back.
    private final AtomicBoolean left = new AtomicBoolean();

    private SharedPeer(
            SharedFolder folder,
            SharedLocks ownerLocks,
            SharedLocks locks,
            FileLock lock,
            ControlPage control,
            int user,
            boolean crossMemory) {
        this.folder = folder;
        this.ownerLocks = ownerLocks;
        this.locks = locks;
        this.lock = lock;
        this.control = control;
        this.marks = new CopyMarks(control, user, this::letGo);
        this.regions = new SharedRegions(folder, control, marks);
        this.process = crossMemory ? attachProcess() : Optional.empty();
    }

    /// Attaches to a peer's shared memory; empty when it is not visible here, which is the normal
    /// case for a peer on another host or in another container.
    ///
    /// @param crossMemory whether to try for the peer's own memory as well
    /// @throws IOException when it is visible, and something that may pass keeps this process from
    ///   it: no file handle is left, or others have all places
    public static Optional<SharedPeer> attach(Path dir, String incarnation, boolean crossMemory)
            throws IOException {
        var folder = new SharedFolder(dir, incarnation);
        if (!Files.isWritable(folder.control())) {
            LOG.debug(
                    "{} is not on this host, of another user, or sees another {}",
                    incarnation,
                    dir);
            return Optional.empty();
        }
        try {
            return Optional.of(Uninterrupted.files(() -> attach(folder, crossMemory)));
        } catch (NoSuchFileException | AccessDeniedException | KvFerryException e) {
            LOG.info("no shared memory with {}: {}", incarnation, e.toString());
            return Optional.empty();
        }
    }

    private static SharedPeer attach(SharedFolder folder, boolean crossMemory) throws IOException {
        SharedLocks locks = SharedLocks.open(folder.users());
        boolean attached = false;
        try {
            for (int user = 0; user < ControlPage.USERS; user++) {
                Optional<FileLock> lock = locks.take(user);
                if (lock.isPresent()) {
                    SharedPeer peer = open(folder, locks, lock.get(), user, crossMemory);
                    attached = true;
                    return peer;
                }
            }
            throw new IOException("all " + ControlPage.USERS + " places of users are taken");
        } finally {
            if (!attached) {
                locks.close();
            }
        }
    }

    private static SharedPeer open(
            SharedFolder folder, SharedLocks locks, FileLock lock, int user, boolean crossMemory)
            throws IOException {
        SharedLocks ownerLocks = null;
        boolean done = false;
        // The page stays mapped as long as the JVM lives or the collector pleases: it is small, and
        // a late reader of it must not fault.
        try (FileChannel file = SharedFolder.open(folder.control())) {
            ControlPage control =
                    ControlPage.open(file, folder.control(), folder.incarnation(), Arena.ofAuto());
            ownerLocks = SharedLocks.open(folder.owner());
            var peer = new SharedPeer(folder, ownerLocks, locks, lock, control, user, crossMemory);
            done = true;
            return peer;
        } finally {
            if (!done) {
                if (ownerLocks != null) {
                    ownerLocks.close();
                }
                lock.release();
            }
        }
    }

    /// Logged whenever a peer is attached to, for it decides how its own memory is reached.
    private Optional<PeerProcess> attachProcess() {
        try {
            if (!ownerLives()) {
                throw new KvFerryException(ErrorCode.PEER_LOST, "its owner has ended");
            }
            return Optional.of(control.attachOwner(folder.incarnation()));
        } catch (KvFerryException e) {
            LOG.info(
                    "no cross memory attach with {}, TCP carries what is not in shared memory: {}",
                    folder.incarnation(),
                    e.getMessage());
            return Optional.empty();
        }
    }

    /// The peer's own memory, where it can be copied.
    public Optional<PeerProcess> process() {
        return process;
    }

    public ControlPage control() {
        return control;
    }

    public SharedRegions regions() {
        return regions;
    }

    public CopyMarks marks() {
        return marks;
    }

    /// Maps the regions that the peer shares now, large ones in the background: the first copy into
    /// unmapped memory takes several times as long.
    public void mapAhead() {
        announced(regions::current);
    }

    /// Where something of the peer is mapped: unmaps what it does not share any more, and maps what
    /// is new.
    public void follow() {
        announced(regions::follow);
    }

    private void announced(Runnable work) {
        int mark = marks.enter();
        if (mark < 0) {
            return; // the next copy will do it, or it is closed
        }
        try {
            marks.announce(mark);
            if (control.isOpen()) {
                work.run();
            }
        } finally {
            marks.exit(mark);
        }
    }

    /// For the holder of the mark only; made with its first use.
    ///
    /// @param locals of the engine that attached
    public MappedCopier copier(int mark, RegionTable locals) {
        MappedCopier made = mapped[mark];
        if (made == null) {
            made = new MappedCopier(control, locals);
            mapped[mark] = made;
        }
        return made;
    }

    /// For the holder of the mark only; made with its first use.
    public CmaCopier copier(int mark, PeerProcess of) {
        CmaCopier made = copiers[mark];
        if (made == null) {
            made = new CmaCopier(control, of);
            copiers[mark] = made;
        }
        return made;
    }

    public static KvFerryException expired(long address, long bytes) {
        return new KvFerryException(
                ErrorCode.LEASE_EXPIRED,
                "the capability for %d bytes at 0x%x is closed or for another range"
                        .formatted(bytes, address));
    }

    /// A transfer goes this way.
    public void use() {
        if (!used) {
            used = true;
        }
    }

    /// Whether a transfer went this way since the last call.
    public boolean takeUse() {
        boolean was = used;
        used = false;
        return was;
    }

    /// Whether the owner's engine is open and its process runs. Costs a system call.
    public boolean isAlive() {
        return control.isOpen() && ownerLives();
    }

    /// Whether the owner runs. Costs a system call; a copy alone cannot tell.
    public boolean ownerLives() {
        try {
            Optional<FileLock> free = ownerLocks.take(0);
            if (free.isPresent()) {
                free.get().release();
            }
            return free.isEmpty();
        } catch (IOException e) {
            LOG.debug("owner {} cannot be checked: {}", folder.incarnation(), e.toString());
            return false;
        }
    }

    /// Ends new copies and lets go of the peer; waits for copies under way. Its memory is unmapped
    /// in the background.
    @Override
    public void close() {
        close(LAST_COPY);
    }

    /// @param patience with copies under way; beyond it the last of them lets go of the peer
    void close(Duration patience) {
        if (marks.close()) {
            // The lock says that this user lives, so it is kept until the last copy is done; memory
            // copies are short.
            boolean idle = marks.isOver();
            try {
                idle |= marks.awaitIdle(Deadline.in(patience));
                regions.close();
            } finally { // also after an OutOfMemoryError
                if (idle) {
                    letGo();
                }
            }
            if (!idle) {
                LOG.warn("a copy to {} takes longer than {}", folder.incarnation(), patience);
            }
        }
    }

    /// As [#close], but only if no copy is in progress; otherwise returns false.
    public boolean closeIfIdle() {
        boolean closes = marks.closeIfIdle();
        if (closes) {
            try {
                regions.close();
            } finally { // also after an OutOfMemoryError
                letGo();
            }
        }
        return closes;
    }

    private void letGo() {
        if (!left.compareAndSet(false, true)) {
            return;
        }
        try {
            lock.release();
            locks.close();
            ownerLocks.close();
        } catch (IOException e) {
            LOG.warn("detaching from {} failed: {}", folder.incarnation(), e.toString());
        }
    }
}
