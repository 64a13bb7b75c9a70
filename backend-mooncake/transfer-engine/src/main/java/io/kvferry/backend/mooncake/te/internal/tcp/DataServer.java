// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.backend.mooncake.te.internal.memory.GrantTable;
import io.kvferry.backend.mooncake.te.internal.memory.Holders;
import io.kvferry.backend.mooncake.te.internal.memory.Holders.Holder;
import io.kvferry.backend.mooncake.te.internal.memory.RegionTable;
import io.kvferry.backend.mooncake.te.internal.memory.TransferFences;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.net.AcceptLoop;
import io.kvferry.toolkit.net.DataSockets;
import io.kvferry.toolkit.net.FullPort;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Accepts data connections and keeps them open. A host that already has as many connections as are
/// free, and at the limit the host that has the most, gets another one only in place of one of its
/// own idle ones: first one with a partial request header, then the one that was idle longest.
/// Without an idle one the new connection is dropped. A connection that cannot be served because
/// memory or threads run out is closed; the port stays open.
///
/// Threading: one platform thread accepts, each connection has one: they are on the latency path.
public final class DataServer implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(DataServer.class);

    /// Connections that were cut off to make room and have not ended yet.
    private static final int ENDING = 64;

    /// A thread that was cut off needs no longer to get out of a call.
    private static final Duration LONGEST_END = Duration.ofSeconds(5);

    private static final long LOOK_AGAIN_NANOS = TimeUnit.MICROSECONDS.toNanos(50);

    private final EngineConfig config;
    private final Watchdog watchdog;
    private final Holders holders;
    private final RegionTable regions;
    private final GrantTable grants;
    private final long incarnation;
    private final Staging staging;
    private final TransferFences fences = new TransferFences();
    private final RefusedWrites refused = new RefusedWrites();

    /// Connections whose thread runs, also those that have made room for others.
    private final Set<DataConnection> running = ConcurrentHashMap.newKeySet();

    private final Set<DataConnection> connections = ConcurrentHashMap.newKeySet();
    private final ExecutorService threads;
    private final AcceptLoop acceptor;

    public DataServer(
            ServerSocketChannel listener,
            EngineConfig config,
            Watchdog watchdog,
            Holders holders,
            RegionTable regions,
            GrantTable grants,
            long incarnation) {
        this.config = config;
        this.watchdog = watchdog;
        this.holders = holders;
        this.regions = regions;
        this.grants = grants;
        this.incarnation = incarnation;
        this.staging = new Staging(config.maxConnections() + ENDING);
        int port = listener.socket().getLocalPort();
        this.threads =
                Executors.newCachedThreadPool(
                        Thread.ofPlatform()
                                .name("kvferry-te-data-" + port + "-", 0)
                                .daemon()
                                .factory());
        this.acceptor = AcceptLoop.start("kvferry-te-accept-" + port, listener, this::accepted);
    }

    private void accepted(SocketChannel channel) throws IOException {
        var host = host(channel);
        if (!makeRoom(host)) {
            LOG.debug("data connection of {} refused: too many are open and busy", host);
            channel.close();
            return;
        }
        DataSockets.prepare(channel);
        DataSockets.boundBuffers(channel, config.socketBufferBytes());
        Staging.Pair buffers = staging.take();
        boolean begun = false;
        try {
            begin(channel, host, buffers);
            begun = true;
        } finally {
            if (!begun) {
                staging.give(buffers);
            }
        }
    }

    private void begin(SocketChannel channel, String host, Staging.Pair buffers) {
        var wire = new Wire(channel, config, watchdog, buffers);
        @Nullable DataConnection connection = null;
        boolean begun = false;
        try {
            var made =
                    new DataConnection(
                            this,
                            host,
                            wire,
                            regions,
                            grants,
                            fences,
                            refused,
                            incarnation,
                            config.extension(),
                            config.auth(PeerAuth.Kind.DATA));
            connection = made;
            holders.add(made);
            connections.add(made);
            running.add(made);
            threads.execute(() -> {
                try {
                    made.run();
                } finally {
                    staging.give(buffers); // this thread was the last to use them
                }
            });
            begun = true;
        } finally {
            if (!begun && connection != null) { // no thread, most likely
                connection.end();
            } else if (!begun) {
                wire.close();
            }
        }
    }

    /// Why peers cannot connect; empty if they can.
    public Optional<String> trouble() {
        return acceptor.trouble();
    }

    private static String host(SocketChannel channel) {
        var address = channel.socket().getInetAddress();
        return address == null ? "?" : address.getHostAddress(); // null once disconnected
    }

    /// WRITEs of peers that were not applied, since the start.
    public long refusedWrites() {
        return refused.total();
    }

    /// Whether there is room for one more connection of a host, possibly in the place of another.
    private boolean makeRoom(String host) {
        int free = config.maxConnections() - connections.size();
        if (free <= 0) {
            var crowd =
                    FullPort.crowd(
                            connections, config.maxConnections(), host, DataConnection::host);
            return crowd.isEmpty() || drop(longestAtRest(crowd));
        }
        var others = connections.stream().filter(other -> other.host().equals(host)).toList();
        return others.size() < Math.max(free, 1) || drop(longestAtRest(others));
    }

    private static @Nullable DataConnection longestAtRest(List<DataConnection> connections) {
        long now = System.nanoTime();
        DataConnection oldest = null;
        long longest = -1;
        for (DataConnection connection : connections) {
            long since = connection.idleSince();
            long rest = connection.hasBegun() ? Long.MAX_VALUE : now - since;
            if (since != 0 && rest > longest) {
                longest = rest;
                oldest = connection;
            }
        }
        return oldest;
    }

    private boolean drop(@Nullable DataConnection connection) {
        if (connection == null) {
            return false;
        }
        ended(connection);
        connection.abort();
        return true;
    }

    void ended(DataConnection connection) {
        holders.remove(connection);
        connections.remove(connection);
    }

    /// Its thread touches nothing any more.
    void left(DataConnection connection) {
        running.remove(connection);
    }

    /// Cuts off whoever serves a message of a token that is refused from now on, and waits until it
    /// is out. False when one does not end.
    boolean end(long token, DataConnection asking) {
        Deadline limit = Deadline.in(LONGEST_END);
        for (DataConnection connection : running) {
            while (connection != asking && connection.serves(token)) {
                connection.abort();
                if (limit.passed()) {
                    return false;
                }
                LockSupport.parkNanos(LOOK_AGAIN_NANOS);
            }
        }
        return true;
    }

    int connections() {
        return connections.size();
    }

    @Override
    public void close() {
        acceptor.close();
        connections.forEach(Holder::abort);
        threads.shutdown();
        try {
            if (!threads.awaitTermination(10, TimeUnit.SECONDS)) {
                LOG.warn("data connections did not end in time");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
