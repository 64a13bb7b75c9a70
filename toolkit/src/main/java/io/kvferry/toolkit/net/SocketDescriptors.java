// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import io.kvferry.toolkit.natives.CLibrary;

import org.jspecify.annotations.Nullable;

import java.io.File;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;

/// The numbers of the descriptors of connections, which the JDK does not tell. One is looked for
/// among all of the process, by both addresses: two system calls for each, so a connection is
/// searched once, when it is about to carry much. Linux only.
///
/// Threading: any thread.
public final class SocketDescriptors {
    /// Where none is found.
    public static final int NONE = -1;

    private static final String DESCRIPTORS = "/proc/self/fd";

    // sys/socket.h of Linux, the same on all its processors that Java runs on
    private static final int AF_INET = 2;
    private static final int AF_INET6 = 10;
    private static final int MOST_ADDRESS_BYTES = 128; // sockaddr_storage

    private SocketDescriptors() {}

    /// Linked when the first connection is searched for.
    private static final class Calls {
        private static final FunctionDescriptor NAME =
                FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, ADDRESS);
        static final @Nullable MethodHandle GETSOCKNAME = CLibrary.find("getsockname", NAME);
        static final @Nullable MethodHandle GETPEERNAME = CLibrary.find("getpeername", NAME);

        private Calls() {}
    }

    /// The descriptor of a connection, which is the only one between its two addresses, or [#NONE].
    /// Somebody else may close the connection meanwhile or later, and another one may get its
    /// number: whoever acts on it keeps the connection open, or can bear to act on another.
    public static int find(SocketChannel connected) throws IOException {
        String[] descriptors = new File(DESCRIPTORS).list();
        if (descriptors == null || Calls.GETSOCKNAME == null || Calls.GETPEERNAME == null) {
            return NONE;
        }
        var here = connected.getLocalAddress();
        var there = connected.getRemoteAddress();
        try (var arena = Arena.ofConfined()) {
            var address = arena.allocate(MOST_ADDRESS_BYTES, Long.BYTES);
            var length = arena.allocate(JAVA_INT);
            for (int i = descriptors.length - 1; i >= 0; i--) { // a new one's number is high
                int descriptor = Integer.parseInt(descriptors[i]);
                if (isAt(Calls.GETSOCKNAME, descriptor, address, length, here)
                        && isAt(Calls.GETPEERNAME, descriptor, address, length, there)) {
                    return descriptor;
                }
            }
        }
        return NONE;
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
