// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.kvferry.toolkit.natives.CLibrary;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.invoke.MethodHandle;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.Set;
import java.util.function.IntSupplier;

/// The congestion control of single connections, which the JDK has no option for.
///
/// Linux's BBR paces: it models the bandwidth and delay of a path and sends by timers. The loopback
/// interface has no such path, only another thread that copies, and the model is wrong most of the
/// time: transfers of 256 KiB and more took up to twice as long, see docs/measurements.md. Reno,
/// which every kernel has and every process may choose, sends as much as its window has room for,
/// and the window only grows where nothing is lost.
///
/// It has to be chosen before there is a connection. BBR turns the socket's pacing timer on when a
/// connection is established (`bbr_init` in net/ipv4/tcp_bbr.c), and nothing turns it off again:
/// Reno on a connection that began with BBR sends by timer too, at a rate of its own. So a socket
/// that is about to connect within the host gets Reno, and so does a listening socket, from which
/// connections inherit it. A connection to another host gets the system's choice back before it
/// carries much.
///
/// The calls need the descriptor, see [SocketDescriptors].
///
/// Threading: any thread.
final class CongestionControl {
    private static final Logger LOG = LoggerFactory.getLogger(CongestionControl.class);
    private static final Path SETTING = Path.of("/proc/sys/net/ipv4/tcp_congestion_control");
    private static final String UNSET = "its descriptor or the option is not to be had";

    /// Those that send as much as their window has room for.
    private static final Set<String> UNPACED = Set.of("reno", "cubic");

    /// Of those the one that needs no permission, see `tcp_allowed_congestion_control`.
    private static final String ALWAYS_ALLOWED = "reno";

    // netinet/in.h and netinet/tcp.h of Linux, the same on all its processors that Java runs on
    private static final int IPPROTO_TCP = 6;
    private static final int TCP_CONGESTION = 13;

    private static final int MOST_NAME_BYTES = 16; // TCP_CA_NAME_MAX

    /// What the machine has.
    static final CongestionControl SYSTEM = ofSystem();

    private final String system;
    private final boolean paces;

    /// @param system what a connection has that is not told otherwise
    CongestionControl(String system, boolean paces) {
        this.system = system;
        this.paces = paces;
    }

    /// Linked when the first connection needs them.
    private static final class Calls {
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

    private static CongestionControl ofSystem() {
        String system = ALWAYS_ALLOWED;
        try {
            system = Files.readString(SETTING).strip();
        } catch (IOException e) {
            LOG.debug("the system's congestion control is not known: {}", e.toString());
        }
        return new CongestionControl(system, !UNPACED.contains(system));
    }

    /// Lets a connection within the host send at once, where the system would pace it.
    ///
    /// @param unconnected open, and about to be connected
    void unpace(SocketChannel unconnected, InetAddress to) {
        try {
            if (paces
                    && (to.isLoopbackAddress() || NetworkInterface.getByInetAddress(to) != null)
                    && !set(SocketDescriptors.findUnconnected(unconnected), ALWAYS_ALLOWED)) {
                LOG.debug("a connection to {} will be paced: {}", to, UNSET);
            }
        } catch (IOException | UnsupportedOperationException | LinkageError e) {
            // Errors where the runtime was built without the JDK's extended socket options
            LOG.debug("a connection to {} will be paced: {}", to, e.toString());
        }
    }

    /// The same for connections that will be accepted. [#settle] gives those from other hosts the
    /// system's choice back, so it must be one that this process may choose.
    ///
    /// @param bound before its first connection is accepted
    void unpace(ServerSocketChannel bound) {
        try {
            if (paces) {
                int descriptor = SocketDescriptors.find(bound);
                if (!set(descriptor, system) || !set(descriptor, ALWAYS_ALLOWED)) {
                    LOG.debug("connections to {} will be paced: {}", bound, UNSET);
                }
            }
        } catch (IOException e) {
            LOG.debug("connections to {} will be paced: {}", bound, e.toString());
        }
    }

    /// Gives a connection to another host what the system would have given it.
    ///
    /// @param descriptor asked for only where it is needed
    void settle(SocketChannel connected, IntSupplier descriptor) {
        try {
            if (paces
                    && !DataSockets.isWithinHost(connected)
                    && !set(descriptor.getAsInt(), system)) {
                LOG.debug("{} may have {} in place of {}", connected, ALWAYS_ALLOWED, system);
            }
        } catch (IOException e) {
            LOG.debug("a connection keeps its congestion control: {}", e.toString());
        }
    }

    /// False where it cannot be set.
    static boolean set(int descriptor, String name) {
        if (descriptor < 0 || Calls.SETSOCKOPT == null) {
            return false;
        }
        try (var arena = Arena.ofConfined()) {
            var text = arena.allocateFrom(name);
            return (int)
                            Calls.SETSOCKOPT.invokeExact(
                                    descriptor, IPPROTO_TCP, TCP_CONGESTION, text, name.length())
                    == 0;
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("setsockopt does not throw", e);
        }
    }

    /// Empty where it cannot be asked for.
    static Optional<String> of(int descriptor) {
        if (descriptor < 0 || Calls.GETSOCKOPT == null) {
            return Optional.empty();
        }
        try (var arena = Arena.ofConfined()) {
            var text = arena.allocate(MOST_NAME_BYTES + 1);
            var length = arena.allocateFrom(JAVA_INT, MOST_NAME_BYTES);
            int result =
                    (int)
                            Calls.GETSOCKOPT.invokeExact(
                                    descriptor, IPPROTO_TCP, TCP_CONGESTION, text, length);
            return result == 0
                    ? Optional.of(text.getString(0, StandardCharsets.US_ASCII))
                    : Optional.empty();
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("getsockopt does not throw", e);
        }
    }
}
