// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.bounded.Uninterrupted;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/// A peer's shared regions as this process has them mapped; follows the control page.
///
/// Threading: any thread.
public final class SharedRegions {
    private static final Logger LOG = LoggerFactory.getLogger(SharedRegions.class);

    /// Retry interval for a file that cannot be mapped, for example because the process has no free
    /// file descriptor.
    private static final long AGAIN_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final SharedFolder folder;
    private final ControlPage control;
    private final ReentrantLock mapping = new ReentrantLock();
    private final CopyMarks marks;

    /// Mapped files by number; each holds a region of the table.
    private final Map<Long, MappedFile> files = new HashMap<>();

    /// Files that no region of the table lies in, not yet handed to a thread that unmaps them.
    private final List<MappedFile> unused = new ArrayList<>();

    private boolean closed;
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
        ///
        /// @param key whether it names the key of the peer's memory
        public boolean permits(long capability, boolean key, boolean write) {
            return access == Access.OPEN
                    || access == Access.KEYED && key
                    || capability != 0 && write;
        }
    }

    SharedRegions(SharedFolder folder, ControlPage control, CopyMarks marks) {
        this.folder = folder;
        this.control = control;
        this.marks = marks;
    }

    /// Whether this is the key of the peer's memory, as the peer itself has it: who named the peer
    /// to us may have lied.
    public boolean isKey(long key) {
        return key != 0 && key == control.memoryKey();
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
            if (closed || isKnown(changes)) {
                return regions;
            }
            lookedAt = System.nanoTime();
            boolean whole = true;
            Set<Long> wanted = new HashSet<>();
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
                @Nullable MappedFile file = number > 0 ? map(fileNumber, offset + bytes) : null;
                if (control.regionNumber(slot) != number) {
                    continue; // and the changes have another number
                }
                if (file == null && number > 0) {
                    whole = false;
                } else {
                    if (file != null) {
                        wanted.add(fileNumber);
                    }
                    @Nullable MemorySegment memory =
                            file == null ? null : file.memory().asSlice(offset, bytes);
                    table[count++] = new Mapped(address, bytes, number, slot, access, memory);
                }
            }
            Mapped[] sorted = Arrays.copyOf(table, count);
            Arrays.sort(sorted, Comparator.comparing(Mapped::address, Long::compareUnsigned));
            regions = sorted;
            lacking = !whole;
            seenChanges = changes;
            retainFiles(wanted);
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
    private @Nullable MappedFile map(long number, long bytes) {
        if (bytes < 0) {
            return null;
        }
        MappedFile known = files.get(number);
        if (known != null) {
            return known.memory().byteSize() < bytes ? null : known;
        }
        try {
            MappedFile file = Uninterrupted.files(() -> MappedFile.map(folder.region(number)));
            if (file.memory().byteSize() < bytes) {
                file.release();
                return null;
            }
            boolean kept = false;
            try {
                files.put(number, file);
                kept = true;
            } finally {
                if (!kept) { // nothing else would unmap it
                    files.remove(number);
                    file.release();
                }
            }
            file.touch();
            return file;
        } catch (IOException e) {
            LOG.debug(
                    "region {} of {} cannot be mapped: {}",
                    number,
                    folder.incarnation(),
                    e.toString());
            return null;
        }
    }

    /// As [SharedPeer#follow]. Called as [#current].
    void follow() {
        if (regions.length > 0) { // otherwise none has been requested
            var _ = current();
        }
        mapping.lock();
        try {
            unmapUnused();
        } finally {
            mapping.unlock();
        }
    }

    /// Unmaps all, in the background if a thread can be started. Called once, when no copy begins
    /// any more.
    void close() {
        mapping.lock();
        try {
            closed = true;
            regions = new Mapped[0];
            retainFiles(Set.of());
        } finally {
            mapping.unlock();
        }
        if (!unused.isEmpty()) { // no thread could be created
            unmap(unused);
        }
    }

    private void retainFiles(Set<Long> numbers) {
        for (var others = files.entrySet().iterator(); others.hasNext(); ) {
            var other = others.next();
            if (!numbers.contains(other.getKey())) {
                unused.add(other.getValue());
                others.remove();
            }
        }
        unmapUnused();
    }

    /// Hands the unused files to a thread that unmaps them when the copies announced by now have
    /// ended: one may be under way by a table that was read before. Later ones find their region
    /// closed.
    private void unmapUnused() {
        if (unused.isEmpty()) {
            return;
        }
        var unmapped = List.copyOf(unused);
        try {
            Thread.ofPlatform().name("kvferry-te-unmap").daemon().start(() -> unmap(unmapped));
            unused.clear();
        } catch (OutOfMemoryError e) { // no native thread: the next time
            LOG.debug("memory of {} stays mapped for now", folder.incarnation(), e);
        }
    }

    private void unmap(List<MappedFile> unmapped) {
        if (!marks.awaitAnnounced(Deadline.in(SharedPeer.LAST_COPY))) {
            LOG.warn("a copy in memory of {} is cut off", folder.incarnation());
        }
        unmapped.forEach(MappedFile::release);
    }
}
