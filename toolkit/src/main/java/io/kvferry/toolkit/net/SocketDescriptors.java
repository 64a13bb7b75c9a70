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
import java.nio.ByteOrder;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.concurrent.atomic.AtomicInteger;

/// The numbers of the descriptors of sockets, which the JDK does not tell. One is looked for among
/// all of the process, by its addresses or, where it has none yet, by a mark: one or two system
/// calls for each, so a socket is searched when it is opened and when it is about to carry much, no
/// more. Linux only.
///
/// Threading: any thread.
public final class SocketDescriptors {
    /// Where none is found.
    public static final int NONE = -1;

    private static final String DESCRIPTORS = "/proc/self/fd";

    // sys/socket.h of Linux, the same on all its processors that Java runs on
    private static final int AF_INET = 2;
    private static final int AF_INET6 = 10;
    private static final int SHUT_RDWR = 2;
    private static final int SOL_SOCKET = 1;
    private static final int SO_ACCEPTCONN = 30;
    private static final int MOST_ADDRESS_BYTES = 128; // sockaddr_storage

    // netinet/in.h and netinet/tcp.h, likewise
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

    private static int find(@Nullable SocketAddress here, @Nullable SocketAddress there)
            throws IOException {
        if (Calls.GETSOCKNAME == null || Calls.GETPEERNAME == null) {
            return NONE;
        }
        try (var arena = Arena.ofConfined()) {
            var address = arena.allocate(MOST_ADDRESS_BYTES, Long.BYTES);
            var length = arena.allocate(JAVA_INT);
            for (int descriptor : newestFirst()) {
                if (isAt(Calls.GETSOCKNAME, descriptor, address, length, here)
                        && (there == null
                                || isAt(Calls.GETPEERNAME, descriptor, address, length, there))) {
                    return descriptor;
                }
            }
        }
        return NONE;
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
            for (int descriptor : newestFirst()) {
                length.set(JAVA_INT, 0, Integer.BYTES);
                if ((int)
                                        Calls.GETSOCKOPT.invokeExact(
                                                descriptor,
                                                IPPROTO_TCP,
                                                TCP_KEEPIDLE,
                                                value,
                                                length)
                                == 0
                        && value.get(JAVA_INT, 0) == mark) {
                    return descriptor;
                }
            }
            return NONE;
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("getsockopt does not throw", e);
        } finally {
            channel.setOption(ExtendedSocketOptions.TCP_KEEPIDLE, before);
        }
    }

    /// Has a socket of this process that listens at the address end that, where whoever opened it
    /// cannot close it: a channel that a selector has is closed by the selector's next turn. Its
    /// descriptor stays open.
    ///
    /// @return whether there was one
    static boolean endListening(InetSocketAddress address) throws IOException {
        if (Calls.GETSOCKNAME == null || Calls.GETSOCKOPT == null || Calls.SHUTDOWN == null) {
            return false;
        }
        try (var arena = Arena.ofConfined()) {
            var name = arena.allocate(MOST_ADDRESS_BYTES, Long.BYTES);
            var value = arena.allocate(JAVA_INT);
            var length = arena.allocate(JAVA_INT);
            for (int descriptor : newestFirst()) {
                if (isAt(Calls.GETSOCKNAME, descriptor, name, length, address)) {
                    length.set(JAVA_INT, 0, Integer.BYTES);
                    if ((int)
                                            Calls.GETSOCKOPT.invokeExact(
                                                    descriptor,
                                                    SOL_SOCKET,
                                                    SO_ACCEPTCONN,
                                                    value,
                                                    length)
                                    == 0
                            && value.get(JAVA_INT, 0) != 0) {
                        return (int) Calls.SHUTDOWN.invokeExact(descriptor, SHUT_RDWR) == 0;
                    }
                }
            }
            return false;
        } catch (RuntimeException | Error | IOException e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("calls on a socket do not throw", e);
        }
    }

    private static int[] newestFirst() {
        String[] names = new File(DESCRIPTORS).list();
        if (names == null) {
            return new int[0];
        }
        int[] descriptors = new int[names.length];
        for (int i = 0; i < names.length; i++) {
            descriptors[names.length - 1 - i] = Integer.parseInt(names[i]);
        }
        return descriptors;
    }

    private static boolean isAt(
            MethodHandle call,
            int descriptor,
            MemorySegment address,
            MemorySegment length,
            @Nullable Object expected)
            throws IOException {
        length.set(JAVA_INT, 0, MOST_ADDRESS_BYTES);
        try {
            if ((int) call.invokeExact(descriptor, address, length) != 0) {
                return false; // no socket, or not connected
            }
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
        return InetAddress.getByAddress(bytes).equals(at.getAddress());
    }
}
