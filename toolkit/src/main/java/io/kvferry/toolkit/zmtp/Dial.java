// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.net.HostNames;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.Closeable;
import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.net.StandardSocketOptions;
import java.net.URI;
import java.net.UnknownHostException;
import java.nio.channels.SocketChannel;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.locks.ReentrantLock;

/// One attempt to connect to a prefiller, and the connection that came of it. It can be closed at
/// any time.
///
/// Threading: [#open] on one thread; the rest from any.
final class Dial implements Closeable {
    private static final Logger LOG = LoggerFactory.getLogger(Dial.class);

    private final String address;
    private final ZmtpHandshake.Terms terms;
    private final ByteBudget room;
    private final ByteBudget unsentRoom;
    private final ScheduledExecutorService clock;
    private final HostNames names;
    private final ReentrantLock lock = new ReentrantLock();
    private HostNames.@Nullable LookUp lookingUp;
    private @Nullable SocketChannel connecting;
    private @Nullable ZmtpConnection connection;
    private boolean closed;

    /// @param room for what is being received
    /// @param unsentRoom for what is to be sent
    Dial(
            String address,
            ZmtpHandshake.Terms terms,
            ByteBudget room,
            ByteBudget unsentRoom,
            ScheduledExecutorService clock) {
        this(address, terms, room, unsentRoom, clock, HostNames.SYSTEM);
    }

    Dial(
            String address,
            ZmtpHandshake.Terms terms,
            ByteBudget room,
            ByteBudget unsentRoom,
            ScheduledExecutorService clock,
            HostNames names) {
        this.names = names;
        this.address = address;
        this.terms = terms;
        this.room = room;
        this.unsentRoom = unsentRoom;
        this.clock = clock;
    }

    /// What is said of a peer to which [#open] or what followed failed.
    record Problem(ErrorCode code, String text) {
        /// @param when what the peer does
        static Problem of(String when, Throwable cause) {
            return switch (cause) {
                case SocketTimeoutException e ->
                        new Problem(
                                ErrorCode.TIMEOUT,
                                when + ": no answer within the time limit, " + e.getMessage());
                case ConnectException e ->
                        new Problem(ErrorCode.PEER_LOST, when + ": " + e.getMessage());
                case IOException e -> new Problem(ErrorCode.PEER_LOST, when + ": " + e);
                case KvFerryException e -> new Problem(e.code(), String.valueOf(e.getMessage()));
                default -> new Problem(ErrorCode.INTERNAL, cause.toString());
            };
        }
    }

    /// Connects and makes the handshake. The dial is to be closed also when this throws.
    ZmtpConnection open(Deadline deadline) throws IOException {
        var made =
                ZmtpConnection.open(
                        connect(deadline),
                        terms,
                        deadline,
                        ReceiveRoom.of(room),
                        unsentRoom,
                        clock);
        if (!adopt(made)) {
            made.close();
            throw new IOException("given up");
        }
        return made;
    }

    private SocketChannel connect(Deadline deadline) throws IOException {
        var target = target();
        IOException last = new UnknownHostException(address);
        for (var host : addresses(target.getHost(), deadline)) {
            var channel = SocketChannel.open();
            if (!connecting(channel)) {
                channel.close();
                throw new IOException("given up");
            }
            try {
                channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                channel.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
                long left = Math.max(1, deadline.remaining().toMillis());
                channel.socket()
                        .connect(
                                new InetSocketAddress(host, target.getPort()),
                                (int) Math.min(left, Integer.MAX_VALUE));
                return channel;
            } catch (IOException e) {
                channel.close();
                last = e;
            }
        }
        throw last;
    }

    private InetAddress[] addresses(String host, Deadline deadline) throws IOException {
        var lookUp = names.lookUp(host);
        if (!lookingUp(lookUp)) {
            throw new IOException("given up");
        }
        return lookUp.await(deadline);
    }

    private URI target() throws IOException {
        try {
            var uri = URI.create(address);
            if ("tcp".equals(uri.getScheme())
                    && uri.getHost() != null
                    && uri.getPort() > 0
                    && uri.getPort() <= 65_535) {
                return uri;
            }
        } catch (IllegalArgumentException e) {
            throw new IOException("not an address: " + address, e);
        }
        throw new IOException("not an address: " + address);
    }

    private boolean lookingUp(HostNames.LookUp lookUp) {
        lock.lock();
        try {
            lookingUp = lookUp;
            return !closed;
        } finally {
            lock.unlock();
        }
    }

    private boolean connecting(SocketChannel channel) {
        lock.lock();
        try {
            connecting = channel;
            return !closed;
        } finally {
            lock.unlock();
        }
    }

    private boolean adopt(ZmtpConnection made) {
        lock.lock();
        try {
            connection = made;
            return !closed;
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void close() {
        HostNames.LookUp lookUp;
        SocketChannel channel;
        ZmtpConnection made;
        lock.lock();
        try {
            closed = true;
            lookUp = lookingUp;
            channel = connecting;
            made = connection;
        } finally {
            lock.unlock();
        }
        if (lookUp != null) {
            lookUp.cancel();
        }
        try {
            if (made != null) {
                made.close();
            } else if (channel != null) {
                channel.close();
            }
        } catch (IOException e) { // what the connection carried ends all the same
            LOG.debug("closing a connection to {} failed: {}", address, e.toString());
        }
    }
}
