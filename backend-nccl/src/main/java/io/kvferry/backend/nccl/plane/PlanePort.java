// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.AcceptLoop;
import io.kvferry.toolkit.net.DataSockets;
import io.kvferry.toolkit.net.HostNames;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/// The port of a data plane. A connection is in its handshake until its hello has arrived, and is
/// closed if that takes longer than [#HELLO_LIMIT]. At most [#MOST_HANDSHAKES] connections may be
/// in their handshake; the next one replaces the oldest, so that silent connections do not block
/// peers.
///
/// Threading: any thread; one thread accepts.
public final class PlanePort implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(PlanePort.class);
    private static final int BACKLOG = 512;
    public static final int MOST_HANDSHAKES = 256;
    static final Duration HELLO_LIMIT = Duration.ofSeconds(5);

    private final String name;
    private final PeerAddress address;
    private final PlaneClock clock;
    private final AcceptLoop acceptor;
    private final Visitor visitor;

    /// Connections that have not said hello yet, each with the number of its arrival.
    private final Map<SocketChannel, Long> handshakes = new ConcurrentHashMap<>();

    private volatile boolean closed;

    /// Of the accepting thread.
    private long arrivals;

    /// Takes connections.
    @FunctionalInterface
    public interface Visitor {
        /// Begins to serve it on another thread, which calls [#hear] and, last, [#left]. What it
        /// throws closes the connection.
        void came(PlanePort port, SocketChannel connection);
    }

    /// Reads what a connection says first.
    @FunctionalInterface
    public interface Hello<T> {
        T read() throws IOException;
    }

    private PlanePort(
            String name,
            PeerAddress address,
            ServerSocketChannel listener,
            PlaneClock clock,
            Visitor visitor) {
        this.name = name;
        this.address = address;
        this.clock = clock;
        this.visitor = visitor;
        this.acceptor = AcceptLoop.start(name + "-accept", listener, this::accepted);
    }

    /// Listens on a free port.
    ///
    /// @param host what peers are told
    /// @param bindHost what the socket listens on
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE]
    public static PlanePort open(
            String name, String host, String bindHost, PlaneClock clock, Visitor visitor) {
        var free = HostNames.SYSTEM.socketAddress(bindHost, 0);
        try {
            var listener = ServerSocketChannel.open();
            try {
                listener.bind(free, BACKLOG);
                DataSockets.expectConnections(listener);
                var address = new PeerAddress(host, listener.socket().getLocalPort());
                return new PlanePort(name, address, listener, clock, visitor);
            } catch (IOException | RuntimeException | Error e) {
                listener.close();
                throw e;
            }
        } catch (IOException | IllegalArgumentException e) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    name + " cannot listen on kv_ip (or bind_host) " + bindHost + ": " + e,
                    e);
        }
    }

    public PeerAddress address() {
        return address;
    }

    private void accepted(SocketChannel connection) throws IOException {
        if (closed) {
            connection.close();
            return;
        }
        if (handshakes.size() >= MOST_HANDSHAKES) {
            handshakes.entrySet().stream()
                    .min(Map.Entry.comparingByValue())
                    .ifPresent(oldest -> cutOff(oldest.getKey()));
        }
        DataSockets.prepare(connection);
        handshakes.put(connection, arrivals++);
        boolean begun = false;
        try {
            visitor.came(this, connection);
            begun = true;
        } finally {
            if (!begun || closed) {
                cutOff(connection);
            }
        }
    }

    /// Closes it, unless it has said hello.
    private void cutOff(SocketChannel connection) {
        if (handshakes.remove(connection) != null) {
            closeQuietly(connection);
        }
    }

    /// Reads the hello of a connection, which ends its handshake.
    public <T> T hear(SocketChannel connection, Hello<T> hello) throws IOException {
        var said = listen(connection, hello);
        if (handshakes.remove(connection) == null) {
            throw new ClosedChannelException(); // cut off at this moment
        }
        return said;
    }

    /// Reads what a connection says, which stays in its handshake.
    <T> T listen(SocketChannel connection, Hello<T> hello) throws IOException {
        var late = clock.after(HELLO_LIMIT, () -> cutOff(connection));
        try {
            return hello.read();
        } finally {
            late.cancel(false);
        }
    }

    /// It is not served any more.
    public void left(SocketChannel connection) {
        handshakes.remove(connection);
    }

    /// Connections that have not said hello yet.
    int handshakes() {
        return handshakes.size();
    }

    public static void closeQuietly(SocketChannel channel) {
        try {
            channel.close();
        } catch (IOException e) {
            LOG.debug("closing a connection failed: {}", e.toString());
        }
    }

    /// Stops accepting, and closes connections in their handshake.
    @Override
    public void close() {
        closed = true;
        acceptor.close();
        handshakes.keySet().forEach(this::cutOff);
    }

    @Override
    public String toString() {
        return name + " at " + address;
    }
}
