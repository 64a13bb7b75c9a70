// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.net.StandardSocketOptions;
import java.net.URI;
import java.net.UnknownHostException;
import java.nio.channels.SocketChannel;
import java.util.Optional;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.locks.ReentrantLock;

/// A DEALER's connection to one prefiller. It carries one exchange at a time, one after the other;
/// what the peer says out of turn ends it.
///
/// Threading: [#run] on a virtual thread of its own, which reads until the end; the rest from any
/// thread.
final class DealerConnection {
    private final String address;
    private final Optional<CurveKeys> keys;
    private final ByteBudget room;
    private final ByteBudget unsentRoom;
    private final ScheduledExecutorService clock;
    private final Listener listener;
    private final ReentrantLock lock = new ReentrantLock();
    private @Nullable Exchange current;
    private @Nullable SocketChannel connecting;
    private @Nullable ZmtpConnection connection;
    private boolean closed;
    private volatile long restingSince;

    /// What the owner of the connections hears.
    interface Listener {
        /// The last answer of an exchange came; the connection is free.
        void onFree(DealerConnection connection, Exchange done);

        /// The connection is over.
        ///
        /// @param carried the exchange that ends with it, if there is one
        void onEnd(DealerConnection connection, Optional<Exchange> carried);
    }

    DealerConnection(
            Exchange first,
            Optional<CurveKeys> keys,
            ByteBudget room,
            ByteBudget unsentRoom,
            ScheduledExecutorService clock,
            Listener listener) {
        this.address = first.address();
        this.current = first;
        this.keys = keys;
        this.room = room;
        this.unsentRoom = unsentRoom;
        this.clock = clock;
        this.listener = listener;
    }

    String address() {
        return address;
    }

    long restingSince() {
        return restingSince;
    }

    /// Connects, sends the first request, and reads.
    void run() {
        String problem = "does not take connections";
        ErrorCode code = ErrorCode.PEER_LOST;
        try {
            var first = currentExchange();
            if (first == null) {
                return;
            }
            var deadline = Deadline.in(first.connectLimit());
            var made =
                    ZmtpConnection.open(
                            connect(deadline),
                            ZmtpHandshake.Role.DEALER,
                            keys,
                            deadline,
                            room,
                            unsentRoom,
                            clock);
            problem = "closed the connection";
            if (!adopt(made)) {
                made.close();
                return;
            }
            first.connected();
            made.send(first.request());
            read(made);
        } catch (SocketTimeoutException e) {
            code = ErrorCode.TIMEOUT;
            problem += ": no answer within the time limit, " + e.getMessage();
        } catch (IOException e) {
            problem += ": " + e;
        } catch (KvFerryException e) {
            code = e.code();
            problem = String.valueOf(e.getMessage());
        } catch (RuntimeException | Error e) {
            code = ErrorCode.INTERNAL;
            problem = e.toString();
        } finally {
            end(code, problem);
        }
    }

    private SocketChannel connect(Deadline deadline) throws IOException {
        var target = target();
        IOException last = new UnknownHostException(address);
        for (var host : InetAddress.getAllByName(target.getHost())) {
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

    private void read(ZmtpConnection made) throws IOException {
        while (true) {
            var message = made.receive();
            var exchange = currentExchange();
            if (exchange == null) {
                throw new KvFerryException(ErrorCode.PROTOCOL, "an answer out of turn");
            }
            var next = exchange.answered(message);
            made.release();
            if (next == SideChannel.Reading.GIVE_UP) {
                return;
            }
            if (next == SideChannel.Reading.DONE) {
                rest();
                listener.onFree(this, exchange);
            }
        }
    }

    private void rest() {
        restingSince = System.nanoTime();
        lock.lock();
        try {
            current = null;
        } finally {
            lock.unlock();
        }
    }

    /// Begins the next exchange on a connection that rests.
    ///
    /// @return false when it has ended meanwhile
    boolean begin(Exchange exchange) {
        lock.lock();
        try {
            var made = connection;
            if (closed || made == null || made.isClosed() || current != null) {
                return false;
            }
            if (!made.send(exchange.request())) {
                return false;
            }
            current = exchange;
            exchange.connected();
            return true;
        } finally {
            lock.unlock();
        }
    }

    private @Nullable Exchange currentExchange() {
        lock.lock();
        try {
            return current;
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

    /// It is over, and so is the exchange that it carries.
    void end(ErrorCode code, String problem) {
        Optional<Exchange> exchange;
        ZmtpConnection made;
        lock.lock();
        try {
            closed = true; // nothing begins here from now on
            exchange = Optional.ofNullable(current);
            made = connection;
        } finally {
            lock.unlock();
        }
        if (made != null) {
            made.release();
        }
        closeNow();
        exchange.ifPresent(carried -> carried.lose(code, problem));
        listener.onEnd(this, exchange);
    }

    /// Ends it from outside; its thread then says so.
    void close() {
        var _ = Thread.ofVirtual().start(this::closeNow);
    }

    void closeNow() {
        SocketChannel channel;
        ZmtpConnection made;
        lock.lock();
        try {
            closed = true;
            channel = connecting;
            made = connection;
        } finally {
            lock.unlock();
        }
        try {
            if (made != null) {
                made.close();
            } else if (channel != null) {
                channel.close();
            }
        } catch (IOException e) {
            throw new IllegalStateException("closing a socket failed", e);
        }
    }
}
