// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import io.kvferry.toolkit.memory.HostPages;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;

/// The page-aligned buffer between files and segments, one per I/O thread, grown to the largest
/// file seen. Large buffers use huge pages where available, so that an O_DIRECT transfer is one
/// segment for the device instead of one per small page.
///
/// A thread that hangs in a system call keeps its buffer, so that no other request gets memory that
/// the kernel may still write to.
///
/// Threading: confined to the thread that made it.
public final class AlignedStaging implements AutoCloseable {
    /// What O_DIRECT asks of address, length and offset on every file system that a probe accepts.
    public static final int ALIGNMENT = 4096;

    /// From here on it has a huge page at least.
    private static final long LARGE = 128 << 10;

    private Arena arena = Arena.ofConfined();
    private MemorySegment memory;
    private ByteBuffer view;

    public AlignedStaging(long bytes) {
        memory = allocate(bytes, arena);
        view = memory.asByteBuffer();
    }

    /// @param arena closed by the caller, also when there is no memory
    private static MemorySegment allocate(long bytes, Arena arena) {
        long aligned = align(bytes);
        return HostPages.allocate(
                aligned >= LARGE ? Math.max(aligned, HostPages.HUGE) : aligned, arena);
    }

    /// Rounds up to the alignment.
    public static long align(long bytes) {
        return (bytes + ALIGNMENT - 1) & -ALIGNMENT;
    }

    /// Makes room for `bytes`; what was inside is lost when it has to grow.
    ///
    /// @throws OutOfMemoryError when there is not so much native memory; the old buffer stays
    public void ensure(long bytes) {
        if (bytes <= memory.byteSize()) {
            return;
        }
        Arena larger = Arena.ofConfined();
        try {
            MemorySegment allocated = allocate(bytes, larger);
            view = allocated.asByteBuffer();
            memory = allocated;
        } catch (RuntimeException | Error e) {
            larger.close();
            throw e;
        }
        Arena former = arena;
        arena = larger; // first: there may be no memory to close the other
        former.close();
    }

    public MemorySegment memory() {
        return memory;
    }

    /// The same bytes for CRC32C, which takes buffers only; position and limit are set by the call.
    public ByteBuffer view(long from, long to) {
        return view.clear().position((int) from).limit((int) to);
    }

    @Override
    public void close() {
        arena.close();
    }
}
