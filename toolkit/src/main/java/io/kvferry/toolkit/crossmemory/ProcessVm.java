// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.crossmemory;

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
import java.util.Optional;

/// The one holder of the calls that copy between the memory of two processes: Linux's
/// `process_vm_readv` and `process_vm_writev`, and `prctl` to allow them.
///
/// Results are the kernel's: bytes, or the negated errno.
public final class ProcessVm {
    public static final int EPERM = 1;
    public static final int ESRCH = 3;
    public static final int ENOMEM = 12;
    public static final int EFAULT = 14;

    /// Entries of one call, UIO_MAXIOV of linux/uio.h.
    public static final int MOST_VECTORS = 1024;

    /// `struct iovec` of a 64-bit system: address and length.
    public static final long VECTOR_BYTES = 16;

    public static final MemoryLayout STATE_LAYOUT = Linker.Option.captureStateLayout();

    private static final Logger LOG = LoggerFactory.getLogger(ProcessVm.class);
    private static final VarHandle ERRNO =
            STATE_LAYOUT.varHandle(MemoryLayout.PathElement.groupElement("errno"));
    private static final FunctionDescriptor COPY =
            FunctionDescriptor.of(
                    JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_LONG);
    private static final @Nullable MethodHandle READ =
            CLibrary.findOnLinux("process_vm_readv", COPY);
    private static final @Nullable MethodHandle WRITE =
            CLibrary.findOnLinux("process_vm_writev", COPY);

    // linux/prctl.h
    private static final int PR_SET_PTRACER = 0x59616d61;
    private static final long PR_SET_PTRACER_ANY = -1;

    private ProcessVm() {}

    /// Why the calls cannot be made from this JVM at all; empty when they can, which does not yet
    /// mean that the kernel grants them.
    public static Optional<String> missing() {
        return READ == null || WRITE == null
                ? Optional.of(
                        System.getProperty("os.name").equals("Linux")
                                ? "process_vm_readv cannot be linked; see --enable-native-access"
                                : "process_vm_readv is a call of Linux")
                : Optional.empty();
    }

    /// Copies from the process's memory into this one's. `state` is of [#STATE_LAYOUT], for the
    /// error.
    public static long read(
            MemorySegment state,
            int pid,
            MemorySegment local,
            long localCount,
            MemorySegment remote,
            long remoteCount) {
        try {
            return answer(
                    (long)
                            handle(READ)
                                    .invokeExact(
                                            state, pid, local, localCount, remote, remoteCount, 0L),
                    state);
        } catch (Throwable e) {
            throw new AssertionError("process_vm_readv does not throw", e);
        }
    }

    /// Copies from this process's memory into the other one's.
    static long write(
            MemorySegment state,
            int pid,
            MemorySegment local,
            long localCount,
            MemorySegment remote,
            long remoteCount) {
        try {
            return answer(
                    (long)
                            handle(WRITE)
                                    .invokeExact(
                                            state, pid, local, localCount, remote, remoteCount, 0L),
                    state);
        } catch (Throwable e) {
            throw new AssertionError("process_vm_writev does not throw", e);
        }
    }

    /// Lets every process of the same user copy to and from this one where Yama's ptrace_scope is
    /// 1. Without Yama there is nothing to allow, and the kernel says EINVAL.
    public static void allowAnyPeer() {
        MethodHandle prctl =
                CLibrary.findOnLinux(
                        "prctl",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG),
                        Linker.Option.firstVariadicArg(1));
        if (prctl == null) {
            return;
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(STATE_LAYOUT);
            int result =
                    (int) prctl.invokeExact(state, PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0L, 0L, 0L);
            LOG.debug(
                    "PR_SET_PTRACER_ANY: {}",
                    result == 0 ? "allowed" : "errno " + (int) ERRNO.get(state, 0L));
        } catch (Throwable e) {
            throw new AssertionError("prctl does not throw", e);
        }
    }

    private static MethodHandle handle(@Nullable MethodHandle handle) {
        if (handle == null) {
            throw new IllegalStateException(missing().orElse(""));
        }
        return handle;
    }

    private static long answer(long result, MemorySegment state) {
        return result >= 0 ? result : -(int) ERRNO.get(state, 0L);
    }
}
