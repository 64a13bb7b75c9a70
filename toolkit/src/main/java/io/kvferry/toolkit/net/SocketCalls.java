// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.kvferry.toolkit.natives.CLibrary;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;
import java.net.SocketException;

/// System calls on socket descriptors, for 64-bit Linux, for callers that want to avoid the locks
/// and copies of a channel. Addresses are not checked, and closing the descriptor does not abort a
/// call.
///
/// Each returns the number of bytes or a negated errno. The kernel reports a socket error only
/// once, so the caller that gets it must keep it, see [#failure].
///
/// Threading: any thread.
public final class SocketCalls {
    /// Bytes of a vector: the address of a buffer and its bytes (`struct iovec`).
    public static final int VECTOR_BYTES = 16;

    /// Bytes of a message that is sent from vectors (`struct msghdr`).
    public static final int MESSAGE_BYTES = 56;

    /// Nothing has arrived, or there is no room, where the call does not wait (asm-generic/errno).
    public static final int EAGAIN = 11;

    /// A signal came before the first byte.
    public static final int EINTR = 4;

    private static final int ECONNRESET = 104;
    private static final int ETIMEDOUT = 110;

    // bits/socket.h
    private static final int MSG_DONTWAIT = 0x40;
    private static final int MSG_NOSIGNAL = 0x4000;

    // struct msghdr: name, its length, vectors, their number, control, its length, flags
    private static final int MESSAGE_VECTORS = 16;
    private static final int MESSAGE_COUNT = 24;

    private static final FunctionDescriptor ON_BYTES =
            FunctionDescriptor.of(JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final FunctionDescriptor ON_VECTORS =
            FunctionDescriptor.of(JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_INT);

    private static final @Nullable MethodHandle READ = CLibrary.findOnLinux("read", ON_BYTES);
    private static final @Nullable MethodHandle READV = CLibrary.findOnLinux("readv", ON_VECTORS);
    private static final @Nullable MethodHandle SENDMSG =
            CLibrary.findOnLinux("sendmsg", ON_VECTORS);
    private static final FunctionDescriptor WITH_FLAGS =
            FunctionDescriptor.of(JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT);
    private static final @Nullable MethodHandle RECV = CLibrary.findOnLinux("recv", WITH_FLAGS);
    private static final @Nullable MethodHandle SEND = CLibrary.findOnLinux("send", WITH_FLAGS);

    private static final StructLayout STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO =
            STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));
    private static final ThreadLocal<MemorySegment> STATES =
            ThreadLocal.withInitial(() -> Arena.ofAuto().allocate(STATE));

    private SocketCalls() {}

    /// Whether they can be made; descriptors are found only where they can.
    public static boolean available() {
        return READ != null && READV != null && RECV != null && SENDMSG != null && SEND != null;
    }

    /// @param vectors of which this is one, in memory
    public static void setVector(MemorySegment vectors, int index, long address, long bytes) {
        vectors.set(JAVA_LONG, (long) index * VECTOR_BYTES, address);
        vectors.set(JAVA_LONG, (long) index * VECTOR_BYTES + Long.BYTES, bytes);
    }

    /// @param message zeros but for what this method sets
    public static void setMessage(MemorySegment message, long vectors, int count) {
        message.set(JAVA_LONG, MESSAGE_VECTORS, vectors);
        message.set(JAVA_LONG, MESSAGE_COUNT, count);
    }

    /// Waits until something has arrived, unless the descriptor is one that does not wait.
    ///
    /// @return 0 at the end of the stream
    public static long read(int descriptor, long address, long bytes) {
        if (READ == null) {
            throw unavailable();
        }
        MemorySegment state = STATES.get();
        try {
            return answer((long) READ.invokeExact(state, descriptor, address, bytes), state);
        } catch (Throwable e) {
            throw thrown(e);
        }
    }

    /// As [#read], of what has arrived; [#EAGAIN], negated, where nothing has.
    public static long readNow(int descriptor, long address, long bytes) {
        if (RECV == null) {
            throw unavailable();
        }
        MemorySegment state = STATES.get();
        try {
            return answer(
                    (long) RECV.invokeExact(state, descriptor, address, bytes, MSG_DONTWAIT),
                    state);
        } catch (Throwable e) {
            throw thrown(e);
        }
    }

    /// As [#read], into several buffers.
    public static long readVectors(int descriptor, long vectors, int count) {
        if (READV == null) {
            throw unavailable();
        }
        MemorySegment state = STATES.get();
        try {
            return answer((long) READV.invokeExact(state, descriptor, vectors, count), state);
        } catch (Throwable e) {
            throw thrown(e);
        }
    }

    /// Sends as much as there is room for; [#EAGAIN], negated, where there is none.
    public static long sendNow(int descriptor, long address, long bytes) {
        if (SEND == null) {
            throw unavailable();
        }
        MemorySegment state = STATES.get();
        try {
            return answer(
                    (long)
                            SEND.invokeExact(
                                    state, descriptor, address, bytes, MSG_DONTWAIT | MSG_NOSIGNAL),
                    state);
        } catch (Throwable e) {
            throw thrown(e);
        }
    }

    /// As [#sendNow], from several buffers.
    ///
    /// @param message address of one
    public static long sendMessageNow(int descriptor, long message) {
        if (SENDMSG == null) {
            throw unavailable();
        }
        MemorySegment state = STATES.get();
        try {
            return answer(
                    (long)
                            SENDMSG.invokeExact(
                                    state, descriptor, message, MSG_DONTWAIT | MSG_NOSIGNAL),
                    state);
        } catch (Throwable e) {
            throw thrown(e);
        }
    }

    /// What a negated error number says, as a channel does.
    public static IOException failure(long negated) {
        return switch ((int) -negated) {
            case ECONNRESET -> new SocketException("Connection reset");
            case ETIMEDOUT -> new SocketException("Connection timed out");
            default -> new IOException("a call on a socket failed with errno " + -negated);
        };
    }

    private static long answer(long returned, MemorySegment state) {
        return returned >= 0 ? returned : -(int) ERRNO.get(state, 0L);
    }

    private static IllegalStateException unavailable() {
        return new IllegalStateException("no system calls here");
    }

    private static RuntimeException thrown(Throwable e) {
        if (e instanceof Error error) {
            throw error;
        }
        if (e instanceof RuntimeException unchecked) {
            return unchecked;
        }
        return new IllegalStateException("a system call threw", e);
    }
}
