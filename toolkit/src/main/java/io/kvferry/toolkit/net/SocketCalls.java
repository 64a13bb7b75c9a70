// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.kvferry.toolkit.natives.CLibrary;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/// System calls on the descriptors of sockets, as Linux has them on 64 bits, for those who save the
/// locks and copies of arguments around a channel's. Nobody checks the addresses, and nobody ends a
/// call when the descriptor is closed.
///
/// Each returns the number of bytes, or -1 with an error that is not told: the channel's call says
/// what is wrong.
///
/// Threading: any thread.
public final class SocketCalls {
    /// Bytes of a vector: the address of a buffer and its bytes (`struct iovec`).
    public static final int VECTOR_BYTES = 16;

    /// Bytes of a message that is sent from vectors (`struct msghdr`).
    public static final int MESSAGE_BYTES = 56;

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

    private static final @Nullable MethodHandle READ = CLibrary.find("read", ON_BYTES);
    private static final @Nullable MethodHandle READV = CLibrary.find("readv", ON_VECTORS);
    private static final @Nullable MethodHandle SENDMSG = CLibrary.find("sendmsg", ON_VECTORS);
    private static final FunctionDescriptor WITH_FLAGS =
            FunctionDescriptor.of(JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT);
    private static final @Nullable MethodHandle RECV = CLibrary.find("recv", WITH_FLAGS);
    private static final @Nullable MethodHandle SEND = CLibrary.find("send", WITH_FLAGS);

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
        try {
            return (long) READ.invokeExact(descriptor, address, bytes);
        } catch (Throwable e) {
            throw thrown(e);
        }
    }

    /// As [#read], of what has arrived; -1 where nothing has.
    public static long readNow(int descriptor, long address, long bytes) {
        if (RECV == null) {
            throw unavailable();
        }
        try {
            return (long) RECV.invokeExact(descriptor, address, bytes, MSG_DONTWAIT);
        } catch (Throwable e) {
            throw thrown(e);
        }
    }

    /// As [#read], into several buffers.
    public static long readVectors(int descriptor, long vectors, int count) {
        if (READV == null) {
            throw unavailable();
        }
        try {
            return (long) READV.invokeExact(descriptor, vectors, count);
        } catch (Throwable e) {
            throw thrown(e);
        }
    }

    /// Sends as much as there is room for; -1 where there is none.
    public static long sendNow(int descriptor, long address, long bytes) {
        if (SEND == null) {
            throw unavailable();
        }
        try {
            return (long) SEND.invokeExact(descriptor, address, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
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
        try {
            return (long) SENDMSG.invokeExact(descriptor, message, MSG_DONTWAIT | MSG_NOSIGNAL);
        } catch (Throwable e) {
            throw thrown(e);
        }
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
