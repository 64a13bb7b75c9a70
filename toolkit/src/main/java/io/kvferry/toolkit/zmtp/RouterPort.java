// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.bounded.FairRoom;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.net.AcceptLoop;
import io.kvferry.toolkit.net.FullPort;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Comparator;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadFactory;

/// The ROUTER of a prefiller: serves decoders' requests, with one virtual thread per connection.
/// When the connection limit is reached, a connection of the host with the most is dropped: the
/// oldest one still in its handshake or, if there is none, the one that has been silent longest.
///
/// If requests are answered on the thread that reads them, a connection with frequent requests gets
/// a platform thread, which wakes up faster, until it is idle.
///
/// Threading: any thread.
final class RouterPort implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(RouterPort.class);
    private static final int MOST_CONNECTIONS = 4096;
    private static final Duration HANDSHAKE_LIMIT = Duration.ofSeconds(10);

    /// Requests of a connection before it has a platform thread, and connections that have one.
    private static final int ASKS_OFTEN = 4;

    static final int MOST_THREADS = 64;

    /// Requests before it is tried again where a thread could not be had.
    private static final int ASKS_WITHOUT_THREAD = 1000;

    /// After which a connection that asks nothing gives its thread back.
    private static final Duration IDLE = Duration.ofSeconds(2);

    /// How long a peer may take to read an answer.
    private static final Duration READ_LIMIT = Duration.ofSeconds(30);

    /// Messages that are being received or handed over, all connections together, see [FairRoom].
    private static final long MOST_BYTES = 256L << 20;

    private static final int PART_OF_HEAP = 8;

    private final String name;
    private final Optional<CurveKeys> keys;
    private final SideChannel.Requests requests;
    private final ScheduledExecutorService clock;
    private final int mostConnections;
    private final FairRoom room;
    private final ByteBudget unsentRoom;
    private final Semaphore slots = new Semaphore(MOST_THREADS);
    private final ThreadFactory threads;
    private final Set<Visitor> visitors = ConcurrentHashMap.newKeySet();
    private final AcceptLoop acceptor;
    private final String address;
    private volatile boolean closed;

    /// @param listener bound
    RouterPort(
            String name,
            ServerSocketChannel listener,
            String host,
            Optional<CurveKeys> keys,
            SideChannel.Requests requests,
            ScheduledExecutorService clock) {
        this(
                name,
                listener,
                host,
                keys,
                requests,
                clock,
                MOST_CONNECTIONS,
                FairRoom.ofHeap(MOST_BYTES, PART_OF_HEAP),
                ByteBudget.ofHeap(MOST_BYTES, PART_OF_HEAP),
                Thread.ofPlatform().daemon().name(name + "-visitor").factory());
    }

    /// @param room for messages that are being received or handed over
    /// @param unsentRoom for answers that have not been sent, all connections together
    /// @param threads makes those of connections that ask often
    RouterPort(
            String name,
            ServerSocketChannel listener,
            String host,
            Optional<CurveKeys> keys,
            SideChannel.Requests requests,
            ScheduledExecutorService clock,
            int mostConnections,
            FairRoom room,
            ByteBudget unsentRoom,
            ThreadFactory threads) {
        this.threads = threads;
        this.mostConnections = mostConnections;
        this.room = room;
        this.unsentRoom = unsentRoom;
        this.name = name;
        this.keys = keys;
        this.requests = requests;
        this.clock = clock;
        this.address = "tcp://" + host + ":" + listener.socket().getLocalPort();
        this.acceptor = AcceptLoop.start(name + "-accept", listener, this::accepted);
    }

    /// `tcp://host:port`
    String address() {
        return address;
    }

    /// Why nobody can connect, if that is so.
    Optional<String> trouble() {
        return acceptor.trouble();
    }

    private void accepted(SocketChannel channel) throws IOException {
        var visitor = new Visitor(channel);
        if (visitors.size() >= mostConnections) {
            FullPort.crowd(visitors, mostConnections, visitor.from, Visitor::host).stream()
                    .min(Comparator.comparing(Visitor::known).thenComparingLong(Visitor::lastHeard))
                    .ifPresent(Visitor::cutOff);
        }
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        channel.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
        visitors.add(visitor);
        boolean begun = false;
        try {
            var _ = Thread.ofVirtual().name(name + "-visitor").start(visitor);
            begun = true;
        } finally {
            if (!begun || closed) {
                visitor.cutOff();
            }
        }
    }

    /// One decoder's connection.
    private final class Visitor implements Runnable, SideChannel.Asker {
        private final SocketChannel channel;
        private final String from;
        private volatile long lastHeard = System.nanoTime();
        private volatile Optional<ZmtpConnection> connection = Optional.empty();
        private Optional<SharedAskers> askers = Optional.empty();
        private boolean hasThread;

        /// Written by its thread, read after that has ended.
        private boolean over;

        Visitor(SocketChannel channel) throws IOException {
            this.channel = channel;
            this.from =
                    channel.getRemoteAddress() instanceof InetSocketAddress address
                            ? address.getAddress().getHostAddress()
                            : "?";
        }

        @Override
        public void run() {
            try (channel) {
                var made =
                        ZmtpConnection.open(
                                channel,
                                new ZmtpHandshake.Terms(
                                        ZmtpHandshake.Role.ROUTER, keys, requests.shares()),
                                Deadline.in(HANDSHAKE_LIMIT),
                                ReceiveRoom.of(room, from),
                                unsentRoom,
                                clock);
                connection = Optional.of(made);
                if (made.shared()) {
                    serveShared(made);
                } else {
                    serve(made);
                }
            } catch (IOException | RuntimeException | Error e) {
                failed(e);
            } finally {
                visitors.remove(this);
                if (connection.isPresent()) {
                    over(connection.get());
                }
            }
        }

        /// Gives its room back without memory.
        private void over(ZmtpConnection made) {
            made.release();
            made.close();
            if (askers.isPresent()) {
                askers.get().gone();
                return;
            }
            try {
                requests.onGone(this);
            } catch (RuntimeException | Error e) {
                LoopReport.ERROR.log(LOG, "{}: callback failed", name, e);
            }
        }

        /// It ends this connection only.
        private void failed(Throwable e) {
            if (e instanceof IOException || e instanceof KvFerryException) {
                LOG.debug("{}: connection of {} ends: {}", name, from, e.toString());
            } else {
                LOG.warn("{}: connection of {} failed", name, from, e);
            }
        }

        private void serve(ZmtpConnection made) throws IOException {
            int asked = 0;
            while (!closed && !over) {
                if (asked < ASKS_OFTEN || !requests.answersHere() || !slots.tryAcquire()) {
                    serveOne(made);
                    asked = Math.min(asked + 1, ASKS_OFTEN);
                    continue;
                }
                try {
                    asked = serveOnThread(made) ? 0 : -ASKS_WITHOUT_THREAD;
                } finally {
                    slots.release();
                }
            }
        }

        private void serveOne(ZmtpConnection made) throws IOException {
            byte[] message = made.receive();
            lastHeard = System.nanoTime();
            SideChannel.guard(name, () -> requests.onRequest(this, message));
            made.release();
        }

        /// Serves it on a platform thread until it is idle or over; this one waits for that.
        ///
        /// @return false when there is no memory for a thread
        private boolean serveOnThread(ZmtpConnection made) {
            hasThread = true;
            try {
                var thread = threads.newThread(() -> serveWhileAsked(made));
                thread.start();
                thread.join();
                return true;
            } catch (OutOfMemoryError e) {
                LOG.debug("{}: no thread for {}: {}", name, from, e.toString());
                return false;
            } catch (InterruptedException e) {
                throw new IllegalStateException("nobody interrupts it", e);
            } finally {
                hasThread = false;
            }
        }

        private void serveWhileAsked(ZmtpConnection made) {
            try {
                while (!closed && made.awaitByte(Deadline.in(IDLE))) {
                    serveOne(made);
                }
            } catch (IOException | RuntimeException | Error e) {
                over = true;
                failed(e);
            }
        }

        private void serveShared(ZmtpConnection made) throws IOException {
            var all = new SharedAskers(name, made, from, requests);
            askers = Optional.of(all);
            while (!closed) {
                byte[] message = made.receive();
                lastHeard = System.nanoTime();
                all.take(message);
                made.release();
            }
        }

        @Override
        public boolean answer(byte[] message) {
            return connection.isPresent() && connection.get().send(message);
        }

        @Override
        public boolean answerHere(byte[] message) {
            return connection.isPresent() && connection.get().sendHere(message, READ_LIMIT);
        }

        @Override
        public boolean hasThread() {
            return hasThread;
        }

        @Override
        public String host() {
            return from;
        }

        @Override
        public String identity() {
            return connection.map(ZmtpConnection::identity).orElse("");
        }

        /// Whether its handshake is over.
        boolean known() {
            return connection.isPresent();
        }

        /// Signs of life count: a shared connection may wait for prefills for long.
        long lastHeard() {
            return connection.map(ZmtpConnection::lastHeard).orElse(lastHeard);
        }

        void cutOff() {
            visitors.remove(this);
            try {
                channel.close();
            } catch (IOException e) {
                LOG.debug("closing a connection failed: {}", e.toString());
            }
        }
    }

    int connections() {
        return visitors.size();
    }

    /// Bytes of answers that wait beyond what each connection may have.
    long unsent() {
        return unsentRoom.taken();
    }

    @Override
    public void close() {
        closed = true;
        acceptor.close();
        visitors.forEach(Visitor::cutOff);
    }
}
