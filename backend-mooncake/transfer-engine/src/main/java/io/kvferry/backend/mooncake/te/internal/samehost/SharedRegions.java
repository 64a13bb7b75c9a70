// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.toolkit.bounded.Uninterrupted;
import io.kvferry.toolkit.memory.HostPages;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/// A peer's shared regions as this process has them mapped; follows the control page.
///
/// Threading: any thread.
public final class SharedRegions {
    private static final Logger LOG = LoggerFactory.getLogger(SharedRegions.class);

    /// Faults of smaller files cost less than a thread.
    private static final long WORTH_TOUCHING = 32 << 20;

    private static final long TOUCHED_AT_ONCE = 64 << 20;

    /// A file that cannot be mapped, for want of a handle for example, is tried again after this.
    private static final long AGAIN_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final SharedFolder folder;
    private final ControlPage control;
    private final ReentrantLock mapping = new ReentrantLock();
    private final Map<Long, MemorySegment> files = new HashMap<>();
    private volatile Mapped[] regions = {};
    private volatile long seenChanges = -1;

    /// Whether the table lacks a region that the page lists.
    private volatile boolean lacking;

    private volatile long lookedAt;

    /// A region of the peer: where it is in the peer, and where here; `memory` is null for the
    /// peer's own memory, which cannot be mapped.
    public record Mapped(
            long address,
            long bytes,
            long number,
            int slot,
            Access access,
            @Nullable MemorySegment memory) {
        /// Whether a copy that names this capability (0: none) may touch it at all.
        public boolean permits(long capability, boolean write) {
            return access == Access.OPEN || capability != 0 && write;
        }
    }

    SharedRegions(SharedFolder folder, ControlPage control) {
        this.folder = folder;
        this.control = control;
    }

    /// The peer's regions as they are now. Called while the copy is announced, so that what is
    /// found open here stays mapped and unused by others until the copy ends.
    public Mapped[] current() {
        if (isKnown(control.changes())) {
            return regions;
        }
        mapping.lock();
        try {
            long changes = control.changes();
            if (isKnown(changes)) {
                return regions;
            }
            lookedAt = System.nanoTime();
            boolean whole = true;
            Map<Long, MemorySegment> wanted = new HashMap<>();
            var table = new Mapped[ControlPage.REGIONS];
            int count = 0;
            for (int slot = 0; slot < ControlPage.REGIONS; slot++) {
                long number = control.regionNumber(slot);
                if (number == 0) {
                    continue;
                }
                long address = control.regionAddress(slot);
                long bytes = control.regionBytes(slot);
                Access access = control.regionAccess(slot);
                long offset = control.regionOffset(slot);
                long fileNumber = control.regionFile(slot);
                @Nullable MemorySegment file = number > 0 ? map(fileNumber, offset + bytes) : null;
                if (control.regionNumber(slot) != number) {
                    continue; // and the changes have another number
                }
                if (file == null && number > 0) {
                    whole = false;
                } else {
                    if (file != null) {
                        wanted.put(fileNumber, file);
                    }
                    @Nullable MemorySegment memory =
                            file == null ? null : file.asSlice(offset, bytes);
                    table[count++] = new Mapped(address, bytes, number, slot, access, memory);
                }
            }
            files.keySet().retainAll(wanted.keySet());
            Mapped[] sorted = Arrays.copyOf(table, count);
            Arrays.sort(sorted, Comparator.comparing(Mapped::address, Long::compareUnsigned));
            regions = sorted;
            lacking = !whole;
            seenChanges = changes;
            return sorted;
        } finally {
            mapping.unlock();
        }
    }

    private boolean isKnown(long changes) {
        return changes == seenChanges && !(lacking && System.nanoTime() - lookedAt >= AGAIN_NANOS);
    }

    /// The one region of a table that holds all of a non-empty range.
    static @Nullable public Mapped find(Mapped[] table, long address, long bytes) {
        int low = 0;
        int high = table.length - 1;
        while (low <= high) {
            int middle = (low + high) >>> 1;
            if (Long.compareUnsigned(table[middle].address, address) <= 0) {
                low = middle + 1;
            } else {
                high = middle - 1;
            }
        }
        if (high < 0 || bytes == 0) {
            return null;
        }
        Mapped found = table[high];
        long offset = address - found.address;
        return Long.compareUnsigned(offset, found.bytes) < 0
                        && Long.compareUnsigned(bytes, found.bytes - offset) <= 0
                ? found
                : null;
    }

    /// The whole file of a region; null when it is shorter than it must be.
    private @Nullable MemorySegment map(long number, long bytes) {
        if (bytes < 0) {
            return null;
        }
        MemorySegment known = files.get(number);
        if (known != null) {
            return known.byteSize() < bytes ? null : known;
        }
        try {
            MemorySegment memory = Uninterrupted.files(() -> mapWhole(folder.region(number)));
            if (memory.byteSize() < bytes) {
                return null;
            }
            files.put(number, memory);
            if (memory.byteSize() >= WORTH_TOUCHING) {
                touch(memory);
            }
            return memory;
        } catch (IOException e) {
            LOG.debug(
                    "region {} of {} cannot be mapped: {}",
                    number,
                    folder.incarnation(),
                    e.toString());
            return null;
        }
    }

    /// Unmapped by the collector once no table names it: a copy may be under way in it when it is
    /// replaced.
    private static MemorySegment mapWhole(Path path) throws IOException {
        try (FileChannel file = SharedFolder.open(path)) {
            return file.map(FileChannel.MapMode.READ_WRITE, 0, file.size(), Arena.ofAuto());
        }
    }

    /// Has all pages mapped in the background. A copy that is the first to reach a page pays a
    /// fault for it, which costs several times as much as the copy itself.
    private void touch(MemorySegment memory) {
        try {
            Thread.ofPlatform()
                    .name("kvferry-te-touch")
                    .daemon()
                    .start(() -> {
                        for (long at = 0;
                                at < memory.byteSize() && control.isOpen();
                                at += TOUCHED_AT_ONCE) {
                            touchPart(
                                    memory.asSlice(
                                            at, Math.min(TOUCHED_AT_ONCE, memory.byteSize() - at)));
                        }
                    });
        } catch (OutOfMemoryError e) { // no native thread: copies pay for the faults then
            LOG.debug("a peer's memory is not mapped ahead", e);
        }
    }

    /// Reading maps 16 pages with one fault, and they can be written from then on; the kernel can
    /// map all of them in one call.
    private static void touchPart(MemorySegment part) {
        if (HostPages.mapAhead(part) != HostPages.Mapped.ALL) {
            part.load();
        }
    }
}
