// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import io.kvferry.toolkit.natives.CLibrary;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

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
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.Set;

/// The congestion control of single connections, which the JDK has no option for.
///
/// Linux's BBR paces: it models the bandwidth and delay of a path and sends by timers. The loopback
/// interface has no such path, only another thread that copies, and the model is wrong most of the
/// time: transfers of 256 KiB and more took up to twice as long, see docs/measurements.md. Reno,
/// which every kernel has and every process may choose, sends as much as its window has room for,
/// and the window only grows where nothing is lost.
///
/// The call needs the number of the descriptor, which the JDK does not tell. It is looked for among
/// all of the process, by both addresses: two system calls for each, so a connection is searched
/// once, when it is about to carry much.
///
/// Threading: any thread.
final class CongestionControl {
    private static final Logger LOG = LoggerFactory.getLogger(CongestionControl.class);
    private static final Path SYSTEM = Path.of("/proc/sys/net/ipv4/tcp_congestion_control");
    private static final String DESCRIPTORS = "/proc/self/fd";

    /// Those that send as much as their window has room for.
    private static final Set<String> UNPACED = Set.of("reno", "cubic");

    /// Of those the one that needs no permission, see `tcp_allowed_congestion_control`.
    private static final String ALWAYS_ALLOWED = "reno";

    // sys/socket.h and netinet/tcp.h of Linux, the same on all its processors that Java runs on
    private static final int AF_INET = 2;
    private static final int AF_INET6 = 10;
    private static final int IPPROTO_TCP = 6;
    private static final int TCP_CONGESTION = 13;

    private static final int MOST_ADDRESS_BYTES = 128; // sockaddr_storage
    private static final int MOST_NAME_BYTES = 16; // TCP_CA_NAME_MAX

    private static final boolean SYSTEM_PACES = !UNPACED.contains(system());

    private CongestionControl() {}

    /// Linked when the first connection is searched for.
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
        static final @Nullable MethodHandle SETSOCKOPT =
                CLibrary.find(
                        "setsockopt",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT));

        private Calls() {}
    }

    /// The system's default, or one that does not pace where it has none.
    private static String system() {
        try {
            return Files.readString(SYSTEM).strip();
        } catch (IOException e) {
            LOG.debug("the system's congestion control is not known: {}", e.toString());
            return ALWAYS_ALLOWED;
        }
    }

    /// Lets a connection within a host send at once, where the system would pace it.
    static void unpace(SocketChannel connected) {
        try {
            if (SYSTEM_PACES
                    && DataSockets.isWithinHost(connected)
                    && !set(connected, ALWAYS_ALLOWED)) {
                LOG.debug(
                        "a connection stays paced: its descriptor or the option is not to be had");
            }
        } catch (IOException e) {
            LOG.debug("a connection stays paced: {}", e.toString());
        }
    }

    /// False where it cannot be set.
    static boolean set(SocketChannel connected, String name) throws IOException {
        try (var arena = Arena.ofConfined()) {
            int descriptor = find(connected, arena);
            if (descriptor < 0 || Calls.SETSOCKOPT == null) {
                return false;
            }
            var text = arena.allocateFrom(name);
            return (int)
                            Calls.SETSOCKOPT.invokeExact(
                                    descriptor, IPPROTO_TCP, TCP_CONGESTION, text, name.length())
                    == 0;
        } catch (IOException | RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("setsockopt does not throw", e);
        }
    }

    /// Empty where it cannot be asked for.
    static Optional<String> of(SocketChannel connected) throws IOException {
        try (var arena = Arena.ofConfined()) {
            int descriptor = find(connected, arena);
            if (descriptor < 0 || Calls.GETSOCKOPT == null) {
                return Optional.empty();
            }
            var text = arena.allocate(MOST_NAME_BYTES + 1);
            var length = arena.allocateFrom(JAVA_INT, MOST_NAME_BYTES);
            int result =
                    (int)
                            Calls.GETSOCKOPT.invokeExact(
                                    descriptor, IPPROTO_TCP, TCP_CONGESTION, text, length);
            return result == 0
                    ? Optional.of(text.getString(0, StandardCharsets.US_ASCII))
                    : Optional.empty();
        } catch (IOException | RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("getsockopt does not throw", e);
        }
    }

    /// The descriptor of a connection, which is the only one between its two addresses; -1 when it
    /// is not found. Somebody else may close the connection meanwhile, and another one may get its
    /// number: then that one's congestion control is set.
    private static int find(SocketChannel connected, Arena arena) throws IOException {
        String[] descriptors = new File(DESCRIPTORS).list();
        if (descriptors == null || Calls.GETSOCKNAME == null || Calls.GETPEERNAME == null) {
            return -1;
        }
        var here = connected.getLocalAddress();
        var there = connected.getRemoteAddress();
        var address = arena.allocate(MOST_ADDRESS_BYTES, Long.BYTES);
        var length = arena.allocate(JAVA_INT);
        for (int i = descriptors.length - 1; i >= 0; i--) { // a new one's number is high
            int descriptor = Integer.parseInt(descriptors[i]);
            if (isAt(Calls.GETSOCKNAME, descriptor, address, length, here)
                    && isAt(Calls.GETPEERNAME, descriptor, address, length, there)) {
                return descriptor;
            }
        }
        return -1;
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
