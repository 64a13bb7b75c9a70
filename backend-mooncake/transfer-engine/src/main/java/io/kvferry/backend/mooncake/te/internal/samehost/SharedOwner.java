// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.Uninterrupted;
import io.kvferry.toolkit.crossmemory.ProcessIdentity;
import io.kvferry.toolkit.memory.AvailableMemory;
import io.kvferry.toolkit.memory.HostPages;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.BitSet;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;
import java.util.function.Supplier;

/// The owning side of the same-host path: an engine's shared regions and capabilities.
///
/// Threading: any thread.
public final class SharedOwner implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(SharedOwner.class);

    /// Copies between processes are announced call by call; a user that is in one for so long does
    /// not run.
    private static final Duration LONGEST_CALL = Duration.ofSeconds(10);

    private final SharedFolder folder;
    private final RegionFiles files;
    private final Arena arena = Arena.ofShared();
    private final SharedLocks ownerLocks;
    private final FileLock ownerLock;
    private final SharedLocks userLocks;
    private final ControlPage control;
    private final AnnouncedCopies copies;
    private final boolean crossMemory;
    private final MemorySegment probe;
    private final ReentrantLock lock = new ReentrantLock();
    private final BitSet regions = new BitSet(ControlPage.REGIONS);
    private final BitSet grants = new BitSet(ControlPage.GRANTS);
    private final Runs extents = new Runs(ControlPage.EXTENTS);
    private final Queue<Offer> offers = new ConcurrentLinkedQueue<>();
    private long nextNumber = 1;

    private SharedOwner(
            SharedFolder folder,
            Optional<ProcessIdentity> self,
            Supplier<AvailableMemory> available,
            Function<MemorySegment, HostPages.Mapped> pages)
            throws IOException {
        this.folder = folder;
        this.files = new RegionFiles(folder, available, pages);
        this.crossMemory = self.isPresent();
        SharedLocks ownerLocks = null;
        SharedLocks userLocks = null;
        boolean done = false;
        try {
            this.probe = arena.allocateFrom(folder.incarnation(), StandardCharsets.US_ASCII);
            SharedFolder.create(folder.owner()).close();
            SharedFolder.create(folder.users()).close();
            ownerLocks = SharedLocks.open(folder.owner());
            userLocks = SharedLocks.open(folder.users());
            this.ownerLock =
                    ownerLocks
                            .take(0)
                            .orElseThrow(() ->
                                    new IOException(
                                            folder.owner() + " is locked by another process"));
            try (FileChannel file = SharedFolder.create(folder.control())) {
                this.control = ControlPage.create(file, folder.incarnation(), self, probe, arena);
            }
            this.ownerLocks = ownerLocks;
            this.userLocks = userLocks;
            this.copies = new AnnouncedCopies(folder, control, userLocks);
            done = true;
        } finally {
            if (!done) {
                folder.delete();
                arena.close();
                closeAll(userLocks, ownerLocks);
            }
        }
    }

    private static void closeAll(@Nullable SharedLocks... opened) throws IOException {
        for (SharedLocks locks : opened) {
            if (locks != null) {
                locks.close();
            }
        }
    }

    /// The owner for a new engine; empty where the folder does not allow it.
    ///
    /// @param crossMemory whether peers may copy to and from the process's own memory
    public static Optional<SharedOwner> create(Path dir, String incarnation, boolean crossMemory) {
        return create(dir, incarnation, crossMemory, AvailableMemory::now, HostPages::mapAhead);
    }

    /// @param available memory of the host
    /// @param pages maps the pages of a new region
    static Optional<SharedOwner> create(
            Path dir,
            String incarnation,
            boolean crossMemory,
            Supplier<AvailableMemory> available,
            Function<MemorySegment, HostPages.Mapped> pages) {
        if (!Files.isDirectory(dir) || !Files.isWritable(dir)) {
            return Optional.empty();
        }
        SharedFolder.sweep(dir);
        var folder = new SharedFolder(dir, incarnation);
        try {
            var self = crossMemory ? ProcessIdentity.own() : Optional.<ProcessIdentity>empty();
            return Optional.of(
                    Uninterrupted.files(() -> new SharedOwner(folder, self, available, pages)));
        } catch (IOException | UnsupportedOperationException e) {
            LOG.info("no shared memory in {}: {}", dir, e.toString());
            return Optional.empty();
        }
    }

    /// What peers must name to use memory of [Access#KEYED].
    public void memoryKey(long key) {
        control.memoryKey(key);
    }

    /// Memory of one shared region.
    public record Pages(MemorySegment memory, int slot, Path file) {}

    /// Empty when the folder has no room; the caller then takes private memory.
    ///
    /// @param arena lifetime of the mapping
    public Optional<Pages> allocate(long bytes, Access access, Arena arena) {
        int slot = takeSlot(regions, ControlPage.REGIONS);
        if (slot < 0) {
            return Optional.empty();
        }
        long number = nextNumber();
        Path path = folder.region(number);
        boolean done = false;
        try {
            MemorySegment memory = files.create(path, bytes, arena);
            var made = Optional.of(new Pages(memory, slot, path));
            control.openRegion(slot, number, memory.address(), bytes, access);
            done = true;
            return made;
        } catch (IOException e) {
            LOG.info(
                    "{} bytes are taken from private memory, not from {}: {}",
                    bytes,
                    folder.folder(),
                    e.toString());
            return Optional.empty();
        } finally {
            if (!done) {
                RegionFiles.delete(path); // also what was made
                giveSlot(regions, slot);
            }
        }
    }

    /// Allocates shared memory that peers cannot use before it is registered; empty when the folder
    /// has no room.
    ///
    /// @param arena lifetime of the mapping
    public Optional<MemorySegment> offer(long bytes, Arena arena) {
        dropFreedOffers();
        long number = nextNumber();
        Path path = folder.region(number);
        boolean listed = false;
        try {
            MemorySegment memory = files.create(path, bytes, arena);
            offers.add(new Offer(number, memory));
            listed = true;
            return Optional.of(memory);
        } catch (IOException e) {
            LOG.info("{} has no room for {} bytes: {}", folder.folder(), bytes, e.toString());
            return Optional.empty();
        } finally {
            if (!listed) {
                RegionFiles.delete(path); // also what was made
            }
        }
    }

    /// Opens a part of the offered memory to peers; -1 if the memory was not offered, or the page
    /// has no free slot.
    public int open(MemorySegment memory, Access access) {
        dropFreedOffers();
        for (Offer offer : offers) {
            long offset = memory.address() - offer.memory().address();
            if (offset >= 0 && offset + memory.byteSize() <= offer.memory().byteSize()) {
                int slot = takeSlot(regions, ControlPage.REGIONS);
                if (slot >= 0) {
                    control.openRegion(
                            slot,
                            nextNumber(),
                            offer.file(),
                            offset,
                            memory.address(),
                            memory.byteSize(),
                            access);
                }
                return slot;
            }
        }
        return -1;
    }

    /// Other memory may be at their addresses by now.
    private void dropFreedOffers() {
        offers.removeIf(offer -> {
            boolean freed = !offer.memory().scope().isAlive();
            if (freed) {
                RegionFiles.delete(folder.region(offer.file()));
            }
            return freed;
        });
    }

    /// Memory that was offered, with the number of its file.
    private record Offer(long file, MemorySegment memory) {}

    /// Ends access of peers to a region. Peers have their own mapping, so freeing the memory later
    /// cannot crash a copy in progress.
    ///
    /// @param kept whether this process keeps using the memory
    /// @throws KvFerryException [ErrorCode#TIMEOUT] if it is kept and a live peer does not end its
    ///   copy; the memory then must not be reused
    public void close(Pages pages, boolean kept, Duration patience) {
        control.closeRegion(pages.slot());
        if (!copies.awaitEnd(Deadline.in(patience))) {
            if (kept) {
                throw new KvFerryException(
                        ErrorCode.TIMEOUT,
                        "a peer on this host is stopped in the middle of a copy to shared memory that is being unregistered; do not reuse the memory");
            }
            LOG.warn("a peer on this host is still copying, into memory that is no longer in use");
        }
        RegionFiles.delete(pages.file());
        giveSlot(regions, pages.slot());
    }

    /// Slot of memory of the process's own that peers may now copy to and from, -1 when there is
    /// none; peers then use the socket.
    public int list(long address, long bytes, Access access) {
        int slot = crossMemory ? takeSlot(regions, ControlPage.REGIONS) : -1;
        if (slot >= 0) {
            control.openRegion(slot, -nextNumber(), address, bytes, access);
        }
        return slot;
    }

    /// Ends access of peers to listed memory and waits for calls that are under way in it.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when a peer that is alive does not end its
    ///   call; the memory must not be reused then
    public void unlist(int slot, Duration patience) {
        control.closeRegion(slot);
        Duration limit = patience.compareTo(LONGEST_CALL) > 0 ? patience : LONGEST_CALL;
        if (!copies.awaitEnd(Deadline.in(limit))) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "a peer on this host is stopped in the middle of a copy to or from memory that is being unregistered; do not reuse the memory");
        }
        giveSlot(regions, slot);
    }

    /// Slot of the new capability, -1 when there is no room; writers then go through the socket.
    public int openGrant(long token, Extents covered) {
        int slot = takeSlot(grants, ControlPage.GRANTS);
        if (slot < 0) {
            return -1;
        }
        int first = -1;
        boolean open = false;
        try {
            first = takeExtents(covered.size());
            if (first >= 0) {
                control.openGrant(slot, token, covered, first);
                open = true;
            }
            return first < 0 ? -1 : slot;
        } finally {
            if (!open) { // no peer has seen its token
                giveExtents(first, covered);
                giveSlot(grants, slot);
            }
        }
    }

    /// Waits for copies under this capability alone, and for those that do not say yet which they
    /// are under.
    ///
    /// @param slot and covered as in [#openGrant]
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when a peer that is alive does not end its
    ///   copy; the memory must not be reused then
    public void closeGrant(int slot, Extents covered, Duration patience) {
        control.closeGrant(slot);
        if (!copies.awaitEnd(slot, Deadline.in(patience))) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "a peer on this host is stopped in the middle of a copy under a closed capability; do not reuse the memory");
        }
        giveExtents(control.firstExtent(slot), covered);
        giveSlot(grants, slot);
    }

    private int takeExtents(int count) {
        lock.lock();
        try {
            return extents.take(count);
        } finally {
            lock.unlock();
        }
    }

    private void giveExtents(int first, Extents covered) {
        if (first < 0) {
            return;
        }
        lock.lock();
        try {
            extents.give(first, covered.size());
        } finally {
            lock.unlock();
        }
    }

    private int takeSlot(BitSet slots, int most) {
        lock.lock();
        try {
            int slot = slots.nextClearBit(0);
            if (slot >= most) {
                return -1;
            }
            slots.set(slot);
            return slot;
        } finally {
            lock.unlock();
        }
    }

    private void giveSlot(BitSet slots, int slot) {
        lock.lock();
        try {
            slots.clear(slot);
        } finally {
            lock.unlock();
        }
    }

    private long nextNumber() {
        lock.lock();
        try {
            return nextNumber++;
        } finally {
            lock.unlock();
        }
    }

    /// Admits no more peers. Copies in progress can still be awaited until [#close].
    public void retire() {
        control.close();
        // A process may start another engine where this one's memory was.
        probe.fill((byte) 0);
        folder.delete();
    }

    @Override
    public void close() {
        retire();
        try {
            ownerLock.release();
            userLocks.close();
            ownerLocks.close();
        } catch (IOException e) {
            LOG.warn("closing the lock files of {} failed: {}", folder.incarnation(), e.toString());
        }
        arena.close();
    }
}
