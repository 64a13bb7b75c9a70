// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.backend.mooncake.te.Holders.Holder;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.StandardSocketOptions;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;

/// Accepts data connections and keeps them open. At the bound the connection that has rested
/// longest makes room; if none rests, the newcomer is dropped.
///
/// Threading: one platform thread accepts, each connection has one: they are on the latency path.
final class DataServer implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(DataServer.class);

    private static final long ACCEPT_BACKOFF_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

    private final ServerSocketChannel listener;
    private final EngineConfig config;
    private final Watchdog watchdog;
    private final Holders holders;
    private final Function<Wire, DataConnection> serving;
    private final Set<DataConnection> connections = ConcurrentHashMap.newKeySet();
    private final ExecutorService threads;
    private final Thread acceptor;
    private volatile boolean closed;

    DataServer(
            ServerSocketChannel listener,
            EngineConfig config,
            Watchdog watchdog,
            Holders holders,
            RegionTable regions,
            GrantTable grants,
            long incarnation) {
        this.listener = listener;
        this.config = config;
        this.watchdog = watchdog;
        this.holders = holders;
        this.serving =
                wire ->
                        new DataConnection(
                                this,
                                wire,
                                regions,
                                new BatchServer(regions, grants, incarnation),
                                config.extension());
        int port = listener.socket().getLocalPort();
        this.threads =
                Executors.newCachedThreadPool(
                        Thread.ofPlatform()
                                .name("kvferry-te-data-" + port + "-", 0)
                                .daemon()
                                .factory());
        this.acceptor =
                Thread.ofPlatform().name("kvferry-te-accept-" + port).daemon().start(this::accept);
    }

    private void accept() {
        while (!closed && listener.isOpen()) {
            try {
                SocketChannel channel = listener.accept();
                if (connections.size() >= config.maxConnections() && !makeRoom()) {
                    LOG.warn(
                            "data connection refused: {} are open and busy",
                            config.maxConnections());
                    channel.close();
                    continue;
                }
                channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                channel.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
                SocketBuffers.size(channel, config.socketBufferBytes());
                serve(channel);
            } catch (IOException e) {
                if (!closed) {
                    LOG.warn("a data connection could not be accepted: {}", e.toString());
                    // Out of file descriptors, most likely: do not spin until some are free.
                    LockSupport.parkNanos(ACCEPT_BACKOFF_NANOS);
                }
            }
        }
    }

    private void serve(SocketChannel channel) {
        var wire = new Wire(channel, config, watchdog);
        DataConnection connection = serving.apply(wire);
        holders.add(connection);
        connections.add(connection);
        threads.execute(connection);
    }

    private boolean makeRoom() {
        long now = System.nanoTime();
        DataConnection oldest = null;
        long longest = -1;
        for (DataConnection connection : connections) {
            long since = connection.idleSince();
            if (since != 0 && now - since > longest) {
                longest = now - since;
                oldest = connection;
            }
        }
        return drop(oldest);
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

    int connections() {
        return connections.size();
    }

    @Override
    public void close() {
        closed = true;
        try {
            listener.close();
        } catch (IOException e) {
            LOG.warn("closing the data port failed: {}", e.toString());
        }
        connections.forEach(Holder::abort);
        threads.shutdown();
        try {
            acceptor.join(Duration.ofSeconds(5));
            if (!threads.awaitTermination(10, TimeUnit.SECONDS)) {
                LOG.warn("data connections did not end in time");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
