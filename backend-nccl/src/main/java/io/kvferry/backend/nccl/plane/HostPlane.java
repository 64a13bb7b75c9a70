// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.AcceptLoop;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/// The data plane over TCP: a connection for each transfer, gathered straight from the sender's
/// blocks and scattered straight into the receiver's, with a CRC32C over each piece.
///
/// A connection that shows no grant of an open window within [#HELLO_LIMIT] is closed; at most
/// [#MOST_STRANGERS] may be in that state.
///
/// Threading: any thread; one virtual thread for each connection.
public final class HostPlane implements DataPlane {
    private static final Logger LOG = LoggerFactory.getLogger(HostPlane.class);
    private static final int BACKLOG = 512;
    private static final int MOST_STRANGERS = 256;
    private static final Duration HELLO_LIMIT = Duration.ofSeconds(5);
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    private final String name;
    private final PeerAddress address;
    private final AcceptLoop acceptor;
    private final ScheduledThreadPoolExecutor clock;
    private final Map<Grant, HostWindow> windows = new ConcurrentHashMap<>();
    private final Set<HostWindow> filling = ConcurrentHashMap.newKeySet();
    private final Set<HostSending> sendings = ConcurrentHashMap.newKeySet();
    private final Set<SocketChannel> strangers = ConcurrentHashMap.newKeySet();
    private final AtomicInteger working = new AtomicInteger();
    private volatile boolean closed;

    private HostPlane(String name, PeerAddress address, ServerSocketChannel listener) {
        this.name = name;
        this.address = address;
        this.clock =
                new ScheduledThreadPoolExecutor(
                        1, Thread.ofPlatform().name(name + "-clock").daemon(true).factory());
        clock.setRemoveOnCancelPolicy(true);
        clock.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        this.acceptor = AcceptLoop.start(name + "-accept", listener, this::accepted);
    }

    /// Listens on a free port.
    ///
    /// @param host what peers are told
    /// @param bindHost what the socket listens on
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE]
    public static HostPlane open(String name, String host, String bindHost) {
        try {
            var listener = ServerSocketChannel.open();
            try {
                listener.bind(new InetSocketAddress(bindHost, 0), BACKLOG);
                var address = new PeerAddress(host, listener.socket().getLocalPort());
                return new HostPlane(name, address, listener);
            } catch (IOException | IllegalArgumentException e) {
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

    @Override
    public String kind() {
        return "host";
    }

    @Override
    public String address() {
        return address.toString();
    }

    @Override
    public Window receive(Grant grant, Placement target, Deadline deadline, Consumer<Outcome> end) {
        var window =
                new HostWindow(
                        target,
                        outcome -> {
                            windows.remove(grant);
                            end.accept(outcome);
                        });
        windows.put(grant, window);
        limit(deadline, () -> window.giveUp(late("filled")), window::timer);
        if (closed) {
            window.giveUp(closedFailure());
        }
        return window;
    }

    @Override
    public Sending send(
            String receiver,
            Grant grant,
            Placement source,
            Deadline deadline,
            Consumer<Outcome> end) {
        var target =
                PeerAddress.parse(receiver)
                        .orElseThrow(() ->
                                new KvFerryException(
                                        ErrorCode.PROTOCOL, "not an address: " + receiver));
        var sending = new HostSending(target, grant, source, deadline, end);
        sendings.add(sending);
        working.incrementAndGet();
        var _ =
                Thread.ofVirtual()
                        .name(name + "-send")
                        .start(() -> {
                            try {
                                sending.run();
                            } finally {
                                sendings.remove(sending);
                                working.decrementAndGet();
                            }
                        });
        limit(deadline, () -> sending.giveUp(late("sent")), sending::timer);
        if (closed) {
            sending.giveUp(closedFailure());
        }
        return sending;
    }

    private Failure late(String what) {
        return new Failure(ErrorCode.TIMEOUT, name + ": not " + what + " within its time limit");
    }

    private Failure closedFailure() {
        return new Failure(ErrorCode.CLOSED, name + " is closed");
    }

    private void limit(Deadline deadline, Runnable late, Consumer<ScheduledFuture<?>> take) {
        try {
            take.accept(
                    clock.schedule(
                            late, Math.max(1, deadline.remainingNanos()), TimeUnit.NANOSECONDS));
        } catch (RejectedExecutionException e) {
            LOG.debug("{} is closed: {}", name, e.toString());
        }
    }

    private void accepted(SocketChannel channel) throws IOException {
        if (closed || strangers.size() >= MOST_STRANGERS) {
            channel.close();
            return;
        }
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        strangers.add(channel);
        working.incrementAndGet();
        var _ = Thread.ofVirtual().name(name + "-receive").start(() -> serve(channel));
    }

    private void serve(SocketChannel channel) {
        try (channel) {
            var window = greet(channel);
            if (window == null) {
                answer(channel, ErrorCode.NOT_FOUND.wire());
                return;
            }
            filling.add(window);
            try {
                if (closed) {
                    window.giveUp(closedFailure());
                }
                window.fill(channel);
            } finally {
                filling.remove(window);
            }
            answer(channel, window.code());
        } catch (IOException | RuntimeException | Error e) { // ends this connection only
            LOG.debug("{}: a connection ends: {}", name, e.toString());
        } finally {
            strangers.remove(channel);
            working.decrementAndGet();
        }
    }

    /// The window that the connection may fill; null where it shows no grant of an open one.
    private @Nullable HostWindow greet(SocketChannel channel) throws IOException {
        var late =
                clock.schedule(
                        () -> closeQuietly(channel), HELLO_LIMIT.toMillis(), TimeUnit.MILLISECONDS);
        try {
            var hello = HostWire.buffer(HostWire.HELLO_BYTES);
            HostWire.readFully(channel, hello);
            hello.flip();
            if (hello.getInt() != HostWire.MAGIC || hello.getInt() != HostWire.VERSION) {
                return null;
            }
            var window = windows.remove(new Grant(hello.getLong(), hello.getLong()));
            return window != null && window.adopt(channel) ? window : null;
        } finally {
            late.cancel(false);
            strangers.remove(channel);
        }
    }

    static void answer(SocketChannel channel, int code) throws IOException {
        var buffer = HostWire.buffer(HostWire.CODE_BYTES);
        HostWire.writeFully(channel, buffer.putInt(code).flip());
    }

    static void closeQuietly(SocketChannel channel) {
        try {
            channel.close();
        } catch (IOException e) {
            LOG.debug("closing a connection failed: {}", e.toString());
        }
    }

    @Override
    public void close() {
        closed = true;
        acceptor.close();
        strangers.forEach(HostPlane::closeQuietly);
        windows.values().forEach(window -> window.giveUp(closedFailure()));
        filling.forEach(window -> window.giveUp(closedFailure()));
        sendings.forEach(sending -> sending.giveUp(closedFailure()));
        var limit = Deadline.in(CLOSE_LIMIT);
        while (working.get() > 0 && !limit.passed()) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
        }
        if (working.get() > 0) {
            LOG.warn("{}: {} connections did not end within {}", name, working, CLOSE_LIMIT);
        }
        clock.shutdownNow();
    }
}
