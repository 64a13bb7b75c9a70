// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

/// Options of the sockets that carry blocks.
///
/// Over a network buffers and congestion control are the system's business, which measures
/// bandwidth and delay. Within a host there is no delay to fill and no network to share:
///
/// - What the system allows a connection (32 MiB and more) only pushes the bytes out of the
///   processor's caches before the receiver comes: on two cores plain socket copies of 16 MiB ran
///   at 2.5 to 3.7 GB/s with the system's choice and at 3.3 to 6.5 GB/s with 256 KiB to 1 MiB.
/// - A congestion control that paces, as BBR does, sends by timers what could go at once, see
///   [CongestionControl].
///
/// Threading: the thread that uses the connection.
public final class DataSockets {
    private static final int WITHIN_HOST_BYTES = 512 << 10;

    private DataSockets() {}

    /// What every data connection needs.
    public static void prepare(SocketChannel channel) throws IOException {
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        channel.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
    }

    /// Connects a socket for blocks.
    ///
    /// @param millis after which it gives up
    /// @throws java.net.SocketTimeoutException when it has given up
    public static void connect(SocketChannel unconnected, InetSocketAddress to, int millis)
            throws IOException {
        prepare(unconnected);
        CongestionControl.SYSTEM.unpace(unconnected, to.getAddress());
        unconnected.socket().connect(to, millis);
    }

    /// Before the first connection for blocks is accepted: those within the host are not paced.
    /// Never fails.
    public static void expectConnections(ServerSocketChannel bound) {
        CongestionControl.SYSTEM.unpace(bound);
    }

    /// Whether both ends have one address. Which containers have together when they share their
    /// network; they are told apart by their pid namespaces.
    public static boolean isWithinHost(SocketChannel connected) throws IOException {
        return connected.getLocalAddress() instanceof InetSocketAddress here
                && connected.getRemoteAddress() instanceof InetSocketAddress there
                && here.getAddress().equals(there.getAddress());
    }

    /// Bounds the bytes under way.
    ///
    /// @param wanted bytes; 0 to bound them within a host only
    public static void boundBuffers(SocketChannel connected, int wanted) throws IOException {
        int bytes = wanted > 0 ? wanted : isWithinHost(connected) ? WITHIN_HOST_BYTES : 0;
        if (bytes > 0) {
            connected.setOption(StandardSocketOptions.SO_RCVBUF, bytes);
            connected.setOption(StandardSocketOptions.SO_SNDBUF, bytes);
        }
    }

    /// Before the first long send: lets the system pace a connection to another host, as it would
    /// without [#expectConnections]. Never fails; a connection that is closed says so at its next
    /// call.
    public static void expectBulk(SocketChannel connected) {
        CongestionControl.SYSTEM.settle(connected, () -> descriptor(connected));
    }

    /// As [#expectBulk(SocketChannel)], for a connection whose descriptor has been found.
    public static void expectBulk(SocketChannel connected, int descriptor) {
        CongestionControl.SYSTEM.settle(connected, () -> descriptor);
    }

    private static int descriptor(SocketChannel connected) {
        try {
            return SocketDescriptors.find(connected);
        } catch (IOException e) {
            return SocketDescriptors.NONE; // closed: the next call says so
        }
    }
}
