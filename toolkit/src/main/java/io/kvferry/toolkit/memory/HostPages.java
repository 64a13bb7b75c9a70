// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.memory;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.kvferry.toolkit.natives.CLibrary;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;

/// Huge pages for large allocations, and prefaulting of pages. Where the kernel or JVM does not
/// permit it, memory comes from the JDK and pages are mapped on first touch.
///
/// Threading: any thread.
public final class HostPages {
    private static final Logger LOG = LoggerFactory.getLogger(HostPages.class);

    /// Bytes of a huge page, of which [#allocate] has some from so many bytes on.
    public static final long HUGE = 2 << 20;

    private static final long SMALL = 4096;

    /// Bytes mapped per call; bounds how long an interrupt or close has to wait.
    private static final long AT_ONCE = 64 << 20;

    // Of linux/mman.h.
    private static final int READ_WRITE = 0x1 | 0x2;
    private static final int PRIVATE_ANONYMOUS = 0x02 | 0x20;
    private static final int MADV_HUGEPAGE = 14;
    private static final int MADV_POPULATE_WRITE = 23;

    // Of errno.h.
    private static final int ENOMEM = 12;
    private static final int EFAULT = 14;

    private static final MemoryLayout STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO =
            STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));
    private static final @Nullable MethodHandle MMAP =
            CLibrary.findOnLinux(
                    "mmap",
                    FunctionDescriptor.of(
                            ADDRESS, ADDRESS, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG));
    private static final @Nullable MethodHandle MUNMAP =
            CLibrary.findOnLinux("munmap", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG));
    private static final @Nullable MethodHandle MADVISE =
            CLibrary.findOnLinux(
                    "madvise", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT));

    private HostPages() {}

    /// What came of mapping pages ahead.
    public enum Mapped {
        ALL,
        /// The kernel cannot, or not for this memory: pages are mapped as they are touched.
        UNSUPPORTED,
        /// There is no memory for them; touching them would end the process.
        NO_ROOM
    }

    /// Zeroed memory that begins at a page; from [#HUGE] bytes on by huge pages where the kernel
    /// has them, with all pages mapped. Unlike the JDK's, large memory does not count against
    /// `-XX:MaxDirectMemorySize`.
    ///
    /// @param arena what it lives as long as
    /// @throws OutOfMemoryError when there is none
    public static MemorySegment allocate(long bytes, Arena arena) {
        if (bytes < HUGE || MMAP == null || MUNMAP == null || MADVISE == null) {
            return arena.allocate(bytes, SMALL);
        }
        var available = AvailableMemory.now();
        if (bytes
                > available
                        .bytes()) { // mapping it all the same would have the kernel end processes
            throw new OutOfMemoryError(
                    bytes
                            + " bytes are more than the "
                            + available.bytes()
                            + " bytes of "
                            + available.bound());
        }
        long room = bytes + HUGE;
        long base = map(MMAP, room);
        boolean done = false;
        try {
            long start = (base + HUGE - 1) & -HUGE;
            MemorySegment memory = at(start, bytes, base, room, arena);
            done = true;
            int advised = advise(start, bytes, MADV_HUGEPAGE);
            if (advised != 0) {
                LOG.debug("no huge pages are advised: errno {}", advised);
            }
            if (mapAhead(memory) == Mapped.NO_ROOM) {
                throw new OutOfMemoryError("no memory for " + bytes + " bytes");
            }
            return memory;
        } finally {
            if (!done) {
                unmap(base, room);
            }
        }
    }

    @SuppressWarnings("restricted") // the size of what mmap returned
    private static MemorySegment at(long start, long bytes, long base, long room, Arena arena) {
        return MemorySegment.ofAddress(start).reinterpret(bytes, arena, _ -> unmap(base, room));
    }

    /// Asks for huge pages; without effect where the kernel has none for this memory.
    public static void adviseHuge(MemorySegment memory) {
        advise(memory.address(), memory.byteSize(), MADV_HUGEPAGE);
    }

    /// Maps all pages of a mapping that can be written, whether somebody has touched them before or
    /// not; their content stays. Costs a fraction of a fault for each page.
    ///
    /// @param memory outside the heap, alive until this returns
    public static Mapped mapAhead(MemorySegment memory) {
        if (MADVISE == null) {
            return Mapped.UNSUPPORTED;
        }
        long start = memory.address() & -SMALL;
        long end = memory.address() + memory.byteSize();
        for (long at = start; at < end; at += AT_ONCE) {
            int error = advise(at, Math.min(AT_ONCE, end - at), MADV_POPULATE_WRITE);
            if (error != 0) {
                LOG.debug("pages are not mapped ahead: errno {}", error);
                return error == EFAULT || error == ENOMEM ? Mapped.NO_ROOM : Mapped.UNSUPPORTED;
            }
        }
        return Mapped.ALL;
    }

    private static long map(MethodHandle mmap, long bytes) {
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment state = scratch.allocate(STATE);
            var mapped =
                    (MemorySegment)
                            mmap.invokeExact(
                                    state,
                                    MemorySegment.NULL,
                                    bytes,
                                    READ_WRITE,
                                    PRIVATE_ANONYMOUS,
                                    -1,
                                    0L);
            if (mapped.address() == -1) {
                throw new OutOfMemoryError(
                        "mmap of " + bytes + " bytes: errno " + (int) ERRNO.get(state, 0L));
            }
            return mapped.address();
        } catch (OutOfMemoryError e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("mmap does not throw", e);
        }
    }

    private static void unmap(long base, long bytes) {
        if (MUNMAP == null) {
            return;
        }
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment state = scratch.allocate(STATE);
            if ((int) MUNMAP.invokeExact(state, base, bytes) != 0) {
                LOG.warn("munmap: errno {}", (int) ERRNO.get(state, 0L));
            }
        } catch (Throwable e) {
            throw new AssertionError("munmap does not throw", e);
        }
    }

    /// 0, or the errno.
    private static int advise(long start, long bytes, int advice) {
        if (MADVISE == null) {
            return -1;
        }
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment state = scratch.allocate(STATE);
            int result = (int) MADVISE.invokeExact(state, start, bytes, advice);
            return result == 0 ? 0 : (int) ERRNO.get(state, 0L);
        } catch (Throwable e) {
            throw new AssertionError("madvise does not throw", e);
        }
    }
}
