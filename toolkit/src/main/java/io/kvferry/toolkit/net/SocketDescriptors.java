// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import io.kvferry.toolkit.natives.CLibrary;

import jdk.net.ExtendedSocketOptions;

import org.jspecify.annotations.Nullable;

import java.io.File;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteOrder;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntPredicate;

/// Finds the file descriptor numbers of sockets, which the JDK does not expose. The search goes
/// through all descriptors of the process and compares addresses or, for an unconnected socket, a
/// mark. It costs one or two system calls per descriptor, so it is done only when a socket is
/// opened and before bulk transfers. Linux only.
///
/// A socket that must not be confused with another is identified by its inode, which is unique per
/// socket. Descriptor numbers are reused as soon as they are free.
///
/// Threading: any thread.
public final class SocketDescriptors {
    /// Where none is found.
    public static final int NONE = -1;

    private static final String DESCRIPTORS = "/proc/self/fd";

    // linux/socket.h and linux/shutdown.h, the same on all processors
    private static final int AF_INET = 2;
    private static final int AF_INET6 = 10;
    private static final int SHUT_RDWR = 2;
    private static final int MOST_ADDRESS_BYTES = 128; // sockaddr_storage

    // asm-generic/socket.h, as x86-64, aarch64 and most others have it. MIPS, SPARC, PA-RISC and
    // Alpha have other numbers: the call fails there, and no listener is found.
    private static final int SOL_SOCKET = 1;
    private static final int SO_ACCEPTCONN = 30;

    // linux/in.h and linux/tcp.h, the same on all processors
    private static final int IPPROTO_TCP = 6;
    private static final int TCP_KEEPIDLE = 4;

    /// A power of two. As many marks follow; the most that the kernel takes is one less than twice
    /// this (MAX_TCP_KEEPIDLE), and its default is below it.
    private static final int LEAST_MARK = 1 << 14;

    private static final AtomicInteger MARKS = new AtomicInteger();

    private SocketDescriptors() {}

    /// Linked when the first socket is searched for.
    private static final class Calls {
        private static final FunctionDescriptor NAME =
                FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, ADDRESS);
        static final @Nullable MethodHandle GETSOCKNAME = CLibrary.find("getsockname", NAME);
        static final @Nullable MethodHandle GETPEERNAME = CLibrary.find("getpeername", NAME);
        static final @Nullable MethodHandle GETSOCKOPT =
                CLibrary.find(
                        "getsockopt",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS, ADDRESS));
        static final @Nullable MethodHandle SHUTDOWN =
                CLibrary.find("shutdown", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
        static final @Nullable MethodHandle DUP =
                CLibrary.find("dup", FunctionDescriptor.of(JAVA_INT, JAVA_INT));
        static final @Nullable MethodHandle CLOSE =
                CLibrary.find("close", FunctionDescriptor.of(JAVA_INT, JAVA_INT));

        private Calls() {}
    }

    /// The descriptor of a connection, which is the only one between its two addresses, or [#NONE].
    /// Somebody else may close the connection meanwhile or later, and another one may get its
    /// number: whoever acts on it keeps the connection open, or can bear to act on another.
    public static int find(SocketChannel connected) throws IOException {
        return find(connected.getLocalAddress(), connected.getRemoteAddress());
    }

    /// As [#find(SocketChannel)], for a socket that listens.
    static int find(ServerSocketChannel bound) throws IOException {
        return find(bound.getLocalAddress(), null);
    }

    private static int find(@Nullable SocketAddress here, @Nullable SocketAddress there) {
        var name = Calls.GETSOCKNAME;
        var peer = Calls.GETPEERNAME;
        if (name == null || peer == null) {
            return NONE;
        }
        try (var arena = Arena.ofConfined()) {
            var address = arena.allocate(MOST_ADDRESS_BYTES, Long.BYTES);
            var length = arena.allocate(JAVA_INT);
            return newest(descriptor ->
                    isAt(name, descriptor, address, length, here)
                            && (there == null || isAt(peer, descriptor, address, length, there)));
        }
    }

    /// The descriptor of a socket that has no address yet, or [#NONE]. For the time of the search
    /// its keepalive begins after as many seconds as that of no other socket. Another thread may
    /// close it meanwhile: not for calls that must not meet another socket.
    static int findUnconnected(SocketChannel channel) throws IOException {
        if (Calls.GETSOCKOPT == null) {
            return NONE;
        }
        int before = channel.getOption(ExtendedSocketOptions.TCP_KEEPIDLE);
        int mark = LEAST_MARK + (MARKS.getAndIncrement() & LEAST_MARK - 1);
        channel.setOption(ExtendedSocketOptions.TCP_KEEPIDLE, mark);
        try (var arena = Arena.ofConfined()) {
            var value = arena.allocate(JAVA_INT);
            var length = arena.allocate(JAVA_INT);
            return newest(descriptor ->
                    option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, value, length) == mark);
        } finally {
            channel.setOption(ExtendedSocketOptions.TCP_KEEPIDLE, before);
        }
    }

    /// What tells the socket of this process that listens at the address from all others, for
    /// [#endListening]. Empty where there is none.
    static String listener(InetSocketAddress address) {
        var name = Calls.GETSOCKNAME;
        if (name == null || Calls.GETSOCKOPT == null) {
            return "";
        }
        try (var arena = Arena.ofConfined()) {
            var bytes = arena.allocate(MOST_ADDRESS_BYTES, Long.BYTES);
            var value = arena.allocate(JAVA_INT);
            var length = arena.allocate(JAVA_INT);
            IntPredicate wanted =
                    descriptor ->
                            isAt(name, descriptor, bytes, length, address)
                                    && option(descriptor, SOL_SOCKET, SO_ACCEPTCONN, value, length)
                                            > 0;
            int found = newest(wanted);
            String identity = identity(found);
            // the number may have become another socket's between two calls
            return wanted.test(found) && identity.equals(identity(found)) ? identity : "";
        }
    }

    /// Shuts a listening socket down where its owner cannot close it: a channel that is registered
    /// with a selector is closed only by the selector's next turn. Its descriptor stays open. Other
    /// sockets are never shut down, even if threads open and close some meanwhile.
    ///
    /// @param listener from [#listener]
    /// @return whether it listened until now
    static boolean endListening(String listener) {
        if (listener.isEmpty()
                || Calls.SHUTDOWN == null
                || Calls.DUP == null
                || Calls.CLOSE == null) {
            return false;
        }
        int descriptor = newest(candidate -> listener.equals(identity(candidate)));
        if (descriptor == NONE) {
            return false;
        }
        try {
            // the number may be that of another socket by now; a copy keeps what it has
            int copy = (int) Calls.DUP.invokeExact(descriptor);
            if (copy < 0) {
                return false;
            }
            try {
                return listener.equals(identity(copy))
                        && (int) Calls.SHUTDOWN.invokeExact(copy, SHUT_RDWR) == 0;
            } finally {
                var _ = (int) Calls.CLOSE.invokeExact(copy);
            }
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("calls on a socket do not throw", e);
        }
    }

    /// As the kernel says: `socket:[inode]`. Empty for a descriptor that is closed.
    private static String identity(int descriptor) {
        try {
            return Files.readSymbolicLink(Path.of(DESCRIPTORS, Integer.toString(descriptor)))
                    .toString();
        } catch (IOException _) {
            return "";
        }
    }

    /// The last descriptor that is wanted, or [#NONE].
    private static int newest(IntPredicate wanted) {
        String[] names = new File(DESCRIPTORS).list();
        if (names != null) {
            for (int i = names.length - 1; i >= 0; i--) {
                int descriptor = Integer.parseInt(names[i]);
                if (wanted.test(descriptor)) {
                    return descriptor;
                }
            }
        }
        return NONE;
    }

    /// The value of a socket's option, or a negative number where it has none.
    private static int option(
            int descriptor, int level, int option, MemorySegment value, MemorySegment length) {
        if (Calls.GETSOCKOPT == null) {
            return -1;
        }
        length.set(JAVA_INT, 0, Integer.BYTES);
        try {
            return (int) Calls.GETSOCKOPT.invokeExact(descriptor, level, option, value, length) == 0
                    ? value.get(JAVA_INT, 0)
                    : -1;
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("getsockopt does not throw", e);
        }
    }

    private static boolean isAt(
            MethodHandle call,
            int descriptor,
            MemorySegment address,
            MemorySegment length,
            @Nullable Object expected) {
        length.set(JAVA_INT, 0, MOST_ADDRESS_BYTES);
        try {
            if ((int) call.invokeExact(descriptor, address, length) != 0) {
                return false; // no socket, or not connected
            }
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("the name of a socket is asked for without a throw", e);
        }
        int family = address.get(JAVA_SHORT, 0);
        if (family != AF_INET && family != AF_INET6
                || !(expected instanceof InetSocketAddress at)) {
            return false;
        }
        int port = address.get(JAVA_SHORT.withOrder(ByteOrder.BIG_ENDIAN), Short.BYTES) & 0xFFFF;
        if (port != at.getPort()) {
            return false;
        }
        // struct sockaddr_in: the address behind the port; sockaddr_in6: behind the flow label
        long offset = family == AF_INET ? 4 : 8;
        byte[] bytes = address.asSlice(offset, family == AF_INET ? 4 : 16).toArray(JAVA_BYTE);
        try {
            return InetAddress.getByAddress(bytes).equals(at.getAddress());
        } catch (UnknownHostException e) {
            throw new AssertionError("an address of 4 or 16 bytes", e);
        }
    }
}
