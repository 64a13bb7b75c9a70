// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.backend.mooncake.te.SharedRegions.Mapped;
import io.kvferry.backend.mooncake.te.TransferRequest.Operation;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/// The using side of the same-host path: a peer's shared regions, mapped into this process. See
/// [ControlPage] for how a copy and the end of a region or capability exclude each other.
///
/// Threading: any thread; at most [ControlPage#LANES] copies at a time, more go through the socket.
final class SharedPeer implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(SharedPeer.class);

    /// A capability is looked at again after this many bytes.
    private static final long CHUNK = 16 << 20;

    private static final Duration LAST_COPY = Duration.ofSeconds(10);

    private final SharedFolder folder;
    private final SharedLocks ownerLocks;
    private final SharedLocks locks;
    private final FileLock lock;
    private final int user;
    private final ControlPage control;
    private final UseGate gate = new UseGate();
    private final AtomicInteger freeLanes = new AtomicInteger((1 << ControlPage.LANES) - 1);
    private final AtomicLong copies = new AtomicLong();
    private final SharedRegions regions;

    private SharedPeer(
            SharedFolder folder,
            SharedLocks ownerLocks,
            SharedLocks locks,
            FileLock lock,
            ControlPage control,
            int user) {
        this.folder = folder;
        this.ownerLocks = ownerLocks;
        this.locks = locks;
        this.lock = lock;
        this.control = control;
        this.regions = new SharedRegions(folder, control);
        this.user = user;
    }

    /// Attaches to a peer's shared memory; empty when it is not visible here, which is the normal
    /// case for a peer on another host or in another container.
    static Optional<SharedPeer> attach(Path dir, String incarnation) {
        var folder = new SharedFolder(dir, incarnation);
        if (!Files.isWritable(folder.control())) {
            return Optional.empty();
        }
        try {
            return attach(folder);
        } catch (IOException | KvFerryException e) {
            LOG.info("no shared memory with {}: {}", incarnation, e.toString());
            return Optional.empty();
        }
    }

    private static Optional<SharedPeer> attach(SharedFolder folder) throws IOException {
        SharedLocks locks = SharedLocks.open(folder.users());
        boolean attached = false;
        try {
            for (int user = 0; user < ControlPage.USERS; user++) {
                Optional<FileLock> lock = locks.take(user);
                if (lock.isPresent()) {
                    SharedPeer peer = open(folder, locks, lock.get(), user);
                    attached = true;
                    return Optional.of(peer);
                }
            }
            return Optional.empty();
        } finally {
            if (!attached) {
                locks.close();
            }
        }
    }

    private static SharedPeer open(SharedFolder folder, SharedLocks locks, FileLock lock, int user)
            throws IOException {
        // The page stays mapped as long as the JVM lives or the collector pleases: it is small, and
        // a late reader of
        // it must not fault.
        try (FileChannel file = SharedFolder.open(folder.control())) {
            ControlPage control =
                    ControlPage.open(file, folder.control(), folder.incarnation(), Arena.ofAuto());
            for (int lane = 0; lane < ControlPage.LANES; lane++) {
                control.setWord(user, lane, 0);
            }
            return new SharedPeer(
                    folder, SharedLocks.open(folder.owner()), locks, lock, control, user);
        } catch (IOException | KvFerryException e) {
            lock.release();
            throw e;
        }
    }

    /// Copies all ranges, or returns false without having copied any: when a range is not in shared
    /// memory (anymore), or all lanes are in use. The local regions are held by the caller.
    ///
    /// @throws KvFerryException [ErrorCode#LEASE_EXPIRED] when the capability is closed, also
    ///   halfway
    boolean copy(TransferRequest request, RegionTable locals) {
        if (!gate.enter()) {
            return false;
        }
        int lane = takeLane();
        try {
            if (lane < 0) {
                return false;
            }
            control.setWord(user, lane, copies.incrementAndGet());
            return control.isOpen() && copyAnnounced(request, locals);
        } finally {
            if (lane >= 0) {
                control.setWord(user, lane, 0);
                giveLane(lane);
            }
            gate.exit();
        }
    }

    private boolean copyAnnounced(TransferRequest request, RegionTable locals) {
        Mapped[] table = regions.current();
        Ranges ranges = request.ranges();
        for (int i = 0; i < ranges.size(); i++) {
            if (ranges.bytes(i) != 0
                    && SharedRegions.find(table, ranges.remoteAddress(i), ranges.bytes(i))
                            == null) {
                return false;
            }
        }
        long token = request.capability();
        int grant = token == 0 ? -1 : control.findGrant(token);
        if (token != 0 && grant < 0) {
            // Its owner may keep it outside the page; the socket will tell.
            return false;
        }
        for (int i = 0; i < ranges.size(); i++) {
            if (grant >= 0 && ranges.bytes(i) != 0) {
                checkGrant(grant, token, ranges.remoteAddress(i), ranges.bytes(i));
            }
        }
        boolean write = request.operation() == Operation.WRITE;
        for (int i = 0; i < ranges.size(); i++) {
            Mapped far = SharedRegions.find(table, ranges.remoteAddress(i), ranges.bytes(i));
            Region near = locals.find(ranges.localAddress(i), ranges.bytes(i));
            if (far != null && near != null) {
                copyRange(ranges, i, near, far, write, grant, token);
            }
        }
        return true;
    }

    private void copyRange(
            Ranges ranges, int i, Region near, Mapped far, boolean write, int grant, long token) {
        long nearOffset = ranges.localAddress(i) - near.address;
        long farOffset = ranges.remoteAddress(i) - far.address();
        long left = ranges.bytes(i);
        while (left > 0) {
            long part = Math.min(left, CHUNK);
            if (grant >= 0 && left != ranges.bytes(i)) {
                checkGrant(grant, token, far.address() + farOffset, part);
            }
            if (write) {
                MemorySegment.copy(near.memory, nearOffset, far.memory(), farOffset, part);
            } else {
                MemorySegment.copy(far.memory(), farOffset, near.memory, nearOffset, part);
            }
            nearOffset += part;
            farOffset += part;
            left -= part;
        }
    }

    private void checkGrant(int slot, long token, long address, long bytes) {
        if (!control.grantCovers(slot, token, address, bytes)) {
            throw new KvFerryException(
                    ErrorCode.LEASE_EXPIRED,
                    "the capability for %d bytes at 0x%x is closed or for another range"
                            .formatted(bytes, address));
        }
    }

    /// Whether the owner runs. Costs a system call; a copy alone cannot tell.
    boolean ownerLives() {
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

    private int takeLane() {
        while (true) {
            int free = freeLanes.get();
            int lane = Integer.numberOfTrailingZeros(free);
            if (free == 0) {
                return -1;
            }
            if (freeLanes.compareAndSet(free, free & ~(1 << lane))) {
                return lane;
            }
        }
    }

    private void giveLane(int lane) {
        freeLanes.getAndUpdate(free -> free | 1 << lane);
    }

    /// Ends new copies and lets go of the peer; waits for copies under way.
    @Override
    public void close() {
        if (gate.close()) {
            // The lock says that this user lives, so it is kept until the last copy is done; memory
            // copies are short.
            if (!gate.awaitIdle(Deadline.in(LAST_COPY))) {
                LOG.warn("a copy to {} takes longer than {}", folder.incarnation(), LAST_COPY);
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
}
