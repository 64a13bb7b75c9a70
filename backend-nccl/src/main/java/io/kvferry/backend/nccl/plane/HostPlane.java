// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.AcceptLoop;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/// The data plane over TCP: a connection for each transfer, gathered straight from the sender's
/// blocks and scattered straight into the receiver's, with a CRC32C over each piece.
///
/// A connection that shows no grant of an open window within [#HELLO_LIMIT] is closed. At most
/// [#MOST_STRANGERS] may be in that state: the one that has been silent longest makes room for the
/// next, so that silent strangers keep no sender out.
///
/// Threading: any thread; one virtual thread for each connection.
public final class HostPlane implements DataPlane {
    private static final Logger LOG = LoggerFactory.getLogger(HostPlane.class);
    private static final int BACKLOG = 512;
    static final int MOST_STRANGERS = 256;
    private static final Duration HELLO_LIMIT = Duration.ofSeconds(5);
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    private final String name;
    private final PeerAddress address;
    private final AcceptLoop acceptor;
    private final ScheduledThreadPoolExecutor clock;
    private final ThreadFactory threads;

    /// Those that have not ended.
    private final Map<Grant, HostWindow> windows = new ConcurrentHashMap<>();

    private final Set<HostSending> sendings = ConcurrentHashMap.newKeySet();

    /// Connections that have shown no grant, each with the number of its arrival.
    private final Map<SocketChannel, Long> strangers = new ConcurrentHashMap<>();

    private final AtomicInteger working = new AtomicInteger();
    private volatile boolean closed;

    /// Of the accepting thread.
    private long arrivals;

    private HostPlane(
            String name, PeerAddress address, ServerSocketChannel listener, ThreadFactory threads) {
        this.name = name;
        this.address = address;
        this.threads = threads;
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
        return open(name, host, bindHost, Thread.ofVirtual().name(name + "-transfer").factory());
    }

    /// As [#open(String, String, String)].
    ///
    /// @param threads make a thread for each connection
    public static HostPlane open(String name, String host, String bindHost, ThreadFactory threads) {
        try {
            var listener = ServerSocketChannel.open();
            try {
                listener.bind(new InetSocketAddress(bindHost, 0), BACKLOG);
                var address = new PeerAddress(host, listener.socket().getLocalPort());
                return new HostPlane(name, address, listener, threads);
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
        try {
            start(sending::run, () -> sendings.remove(sending));
        } catch (RuntimeException | Error e) { // no memory for a thread, for one
            sendings.remove(sending);
            throw Failure.of(e).toException();
        }
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

    /// Runs it on a thread of its own, counted until `after` has run.
    private void start(Runnable work, Runnable after) {
        working.incrementAndGet();
        boolean begun = false;
        try {
            threads.newThread(
                            () -> {
                                try {
                                    work.run();
                                } finally {
                                    after.run();
                                    working.decrementAndGet();
                                }
                            })
                    .start();
            begun = true;
        } finally {
            if (!begun) {
                working.decrementAndGet();
            }
        }
    }

    private void accepted(SocketChannel channel) throws IOException {
        if (closed) {
            channel.close();
            return;
        }
        if (strangers.size() >= MOST_STRANGERS) {
            makeRoom();
        }
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        strangers.put(channel, arrivals++);
        boolean begun = false;
        try {
            start(() -> serve(channel), () -> strangers.remove(channel));
            begun = true;
        } finally {
            if (!begun || closed) {
                cutOff(channel);
            }
        }
    }

    /// Whoever has a grant shows it at once.
    private void makeRoom() {
        strangers.entrySet().stream()
                .min(Map.Entry.comparingByValue())
                .ifPresent(oldest -> cutOff(oldest.getKey()));
    }

    /// Closes it, unless it has shown its grant.
    private void cutOff(SocketChannel stranger) {
        if (strangers.remove(stranger) != null) {
            closeQuietly(stranger);
        }
    }

    private void serve(SocketChannel channel) {
        try (channel) {
            var grant = greet(channel);
            var window = grant.map(windows::get);
            if (window.isEmpty() || !window.get().fill(channel)) {
                answer(channel, ErrorCode.NOT_FOUND.wire());
                return;
            }
            answer(channel, window.get().code());
        } catch (IOException | RuntimeException | Error e) { // ends this connection only
            LOG.debug("{}: a connection ends: {}", name, e.toString());
        }
    }

    /// The grant that the connection shows; empty where it does not speak this protocol.
    private Optional<Grant> greet(SocketChannel channel) throws IOException {
        var late =
                clock.schedule(
                        () -> cutOff(channel), HELLO_LIMIT.toMillis(), TimeUnit.MILLISECONDS);
        try {
            var hello = HostWire.buffer(HostWire.HELLO_BYTES);
            HostWire.readFully(channel, hello);
            hello.flip();
            if (strangers.remove(channel) == null) {
                throw new ClosedChannelException(); // cut off at this moment
            }
            return hello.getInt() == HostWire.MAGIC && hello.getInt() == HostWire.VERSION
                    ? Optional.of(new Grant(hello.getLong(), hello.getLong()))
                    : Optional.empty();
        } finally {
            late.cancel(false);
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

    /// Connections that have shown no grant yet.
    int strangers() {
        return strangers.size();
    }

    /// Connections that have a thread.
    int working() {
        return working.get();
    }

    @Override
    public void close() {
        closed = true;
        acceptor.close();
        strangers.keySet().forEach(this::cutOff);
        windows.values().forEach(window -> window.giveUp(closedFailure()));
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
