// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.toolkit.memory.HostPages;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;

/// A file with regions of a peer, mapped into this process until [#release]. The pages of a deleted
/// file are freed only when no process maps it, so it is unmapped explicitly and not by the garbage
/// collector.
///
/// Threading: any thread.
final class MappedFile {
    private static final Logger LOG = LoggerFactory.getLogger(MappedFile.class);

    /// Faults of smaller files cost less than a thread.
    private static final long WORTH_TOUCHING = 32 << 20;

    private static final long TOUCHED_AT_ONCE = 64 << 20;

    private final Arena arena = Arena.ofShared();
    private final MemorySegment memory;

    /// The table of regions, and the thread that touches the pages.
    private final AtomicInteger holders = new AtomicInteger(1);

    private volatile boolean released;

    private MappedFile(FileChannel file) throws IOException {
        boolean mapped = false;
        try {
            memory = file.map(FileChannel.MapMode.READ_WRITE, 0, file.size(), arena);
            mapped = true;
        } finally {
            if (!mapped) {
                arena.close();
            }
        }
    }

    static MappedFile map(Path path) throws IOException {
        try (FileChannel file = SharedFolder.open(path)) {
            return new MappedFile(file);
        }
    }

    MemorySegment memory() {
        return memory;
    }

    /// Has all pages mapped in the background. A copy that is the first to reach a page pays a
    /// fault for it, which costs several times as much as the copy itself.
    void touch() {
        if (memory.byteSize() < WORTH_TOUCHING) {
            return;
        }
        holders.incrementAndGet();
        boolean begun = false;
        try {
            var _ = Thread.ofPlatform().name("kvferry-te-touch").daemon().start(this::touchAll);
            begun = true;
        } catch (OutOfMemoryError e) { // no native thread: copies pay for the faults then
            LOG.debug("a peer's memory is not mapped ahead", e);
        } finally {
            if (!begun) {
                letGo();
            }
        }
    }

    private void touchAll() {
        try {
            for (long at = 0; at < memory.byteSize() && !released; at += TOUCHED_AT_ONCE) {
                touchPart(memory.asSlice(at, Math.min(TOUCHED_AT_ONCE, memory.byteSize() - at)));
            }
        } finally {
            letGo();
        }
    }

    /// Reading maps 16 pages with one fault, and they can be written from then on; the kernel can
    /// map all of them in one call.
    private static void touchPart(MemorySegment part) {
        if (HostPages.mapAhead(part) != HostPages.Mapped.ALL) {
            part.load();
        }
    }

    /// Unmaps the file, immediately or when the thread that touches its pages has stopped. Called
    /// once. A copy in progress then fails.
    void release() {
        released = true;
        letGo();
    }

    private void letGo() {
        if (holders.decrementAndGet() == 0) {
            arena.close();
        }
    }
}
