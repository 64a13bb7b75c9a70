// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpHandler;
import com.sun.net.httpserver.HttpServer;

import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.recovery.OpeningParts;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.BindException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.channels.ServerSocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;

/// Adds to the JDK's HTTP server what it lacks: a time limit for reading a request and writing its
/// response, a limit of concurrent requests, and a watchdog that restarts it on the same port when
/// it stops responding. An Error or an interrupt in its single dispatcher thread ends the JDK's
/// server silently.
///
/// Threading: a virtual thread per request; any thread may call.
public final class HttpPort implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(HttpPort.class);
    private static final int BACKLOG = 512;
    private static final int DEAF_AFTER = 3;
    private static final String SOMEBODY_ELSES = "none of ours";
    private static final byte[] PROBE =
            "HEAD /alive HTTP/1.0\r\n\r\n".getBytes(StandardCharsets.US_ASCII);

    private final String name;
    private final InetSocketAddress address;
    private final HttpHandler handler;
    private final Duration limit;
    private final int most;
    private final Queue<Thread> running = new ConcurrentLinkedQueue<>();
    private final AtomicInteger count = new AtomicInteger();
    private final ScheduledThreadPoolExecutor clock;
    private final Duration look;
    private final ReentrantLock starting = new ReentrantLock();
    private HttpServer server;

    /// The socket that it listens on, see [SocketDescriptors#listener]. Empty where there may be
    /// one that is not known, as after a start that failed half-way.
    private String socket = "";

    private volatile boolean closed;
    private volatile int silent;
    private volatile String trouble = "";

    private HttpPort(
            String name,
            HttpServer server,
            HttpHandler handler,
            Duration limit,
            int most,
            Duration look) {
        this.name = name;
        this.server = server;
        this.address = server.getAddress();
        this.handler = handler;
        this.limit = limit;
        this.most = most;
        this.look = look;
        this.clock =
                new ScheduledThreadPoolExecutor(
                        1, Thread.ofPlatform().name(name + "-clock").daemon().factory());
        clock.setRemoveOnCancelPolicy(true);
    }

    /// Listens.
    ///
    /// @param limit of one request, from its first byte to the end of its answer
    /// @param most requests that are served at a time; the one that has taken longest makes room
    ///   for the next
    /// @throws IOException when the address cannot be bound
    public static HttpPort start(
            String name, InetSocketAddress address, Duration limit, int most, HttpHandler handler)
            throws IOException {
        return start(name, address, limit, most, handler, Duration.ofSeconds(5));
    }

    /// @param look time between two looks whether the server still answers
    public static HttpPort start(
            String name,
            InetSocketAddress address,
            Duration limit,
            int most,
            HttpHandler handler,
            Duration look)
            throws IOException {
        var port = new HttpPort(name, create(address), handler, limit, most, look);
        try (var parts = new OpeningParts()) {
            parts.add(port, HttpPort::close);
            port.socket = port.socket();
            long nanos = look.toNanos();
            var _ =
                    port.clock.scheduleWithFixedDelay(
                            LastingLoop.repeated(port::watch), nanos, nanos, TimeUnit.NANOSECONDS);
            port.run(port.server);
            parts.keep();
            return port;
        }
    }

    /// The JDK's server leaves its socket open when it cannot bind it.
    private static HttpServer create(InetSocketAddress address) throws IOException {
        try (var probe = ServerSocketChannel.open()) {
            probe.bind(address);
        }
        return HttpServer.create(address, BACKLOG);
    }

    private void run(HttpServer started) {
        started.createContext("/", this::handle);
        started.setExecutor((Executor) this::execute);
        started.start();
    }

    /// Handlers must not close the exchange, only the response body, and must let exceptions
    /// propagate: the JDK's server (Java 25) leaks a connection that the client has reset if the
    /// handler closes the exchange.
    private void handle(HttpExchange exchange) throws IOException {
        if (exchange.getRequestURI().getPath().equals("/alive")
                && exchange.getRequestMethod().equals("HEAD")) {
            exchange.sendResponseHeaders(204, -1);
            return;
        }
        handler.handle(exchange);
    }

    /// Runs a request from its first byte on. An interrupt closes its connection, wherever it is.
    private void execute(Runnable request) {
        int now = count.get();
        if (now >= most) {
            var longest = running.poll();
            if (longest != null) {
                longest.interrupt();
            }
            if (now >= 2 * most) { // those that were cut off have not ended yet
                throw new RejectedExecutionException("too many requests at a time");
            }
        }
        count.incrementAndGet();
        boolean begun = false;
        try {
            var _ = Thread.ofVirtual().name(name).start(() -> serve(request));
            begun = true;
        } finally {
            if (!begun) {
                count.decrementAndGet();
            }
        }
    }

    private void serve(Runnable request) {
        running.add(Thread.currentThread());
        try {
            var late =
                    clock.schedule(
                            Thread.currentThread()::interrupt,
                            limit.toMillis(),
                            TimeUnit.MILLISECONDS);
            try {
                request.run();
            } finally {
                late.cancel(false);
            }
        } catch (RuntimeException | Error e) { // ends this request only
            if (closed) {
                LOG.debug("{}: a request came while the port was closed", name, e);
            } else {
                LOG.warn("{}: a request failed", name, e);
            }
        } finally {
            running.remove(Thread.currentThread());
            count.decrementAndGet();
        }
    }

    private void watch() {
        try {
            silent = answers() ? 0 : silent + 1;
            if (silent >= DEAF_AFTER && !closed) {
                startAgain();
            } else if (silent == 0) {
                trouble = "";
            }
        } catch (RuntimeException | IOException | Error e) { // the next look comes all the same
            trouble = "cannot be started again";
            LoopReport.ERROR.log(LOG, "{} on {} cannot be started again", name, address, e);
            trouble = name + " cannot be started again: " + e;
        }
    }

    /// Whether it takes connections and does something with them; a connection that it closes
    /// because it is busy will do.
    private boolean answers() {
        try (var probe = new Socket()) {
            int millis = (int) Math.max(100, Math.min(2_000, look.toMillis()));
            probe.connect(address, millis);
            probe.setSoTimeout(millis);
            probe.getOutputStream().write(PROBE);
            var _ = probe.getInputStream().read();
            return true;
        } catch (java.net.SocketTimeoutException | java.net.ConnectException e) {
            return false;
        } catch (IOException e) {
            return true;
        }
    }

    private void startAgain() throws IOException {
        starting.lock();
        try {
            if (!closed) {
                trouble = name + " on " + address + " does not answer";
                LOG.error("{}; it is started again", trouble);
                stop();
                bind();
                run(server);
                silent = 0;
            }
        } finally {
            starting.unlock();
        }
    }

    private void bind() throws IOException {
        try {
            server = create(address);
            socket = "";
            socket = socket();
        } catch (BindException e) { // somebody else has the port
            socket = socket.isEmpty() ? SOMEBODY_ELSES : socket;
            throw e;
        } catch (IOException | RuntimeException | Error e) { // it may be bound all the same
            socket = "";
            throw e;
        }
    }

    private String socket() {
        return socket.isEmpty() ? SocketDescriptors.listener(address) : socket;
    }

    /// The thread of the JDK's server closes its socket. Where it has ended, or never began, the
    /// socket goes on listening and nobody answers.
    private void stop() {
        try {
            socket = socket();
        } finally {
            server.stop(0);
        }
        var _ = SocketDescriptors.endListening(socket);
    }

    public InetSocketAddress address() {
        return address;
    }

    /// Why it does not answer, if that is so.
    public Optional<String> trouble() {
        return trouble.isEmpty() ? Optional.empty() : Optional.of(trouble);
    }

    @Override
    public void close() {
        closed = true;
        clock.shutdownNow();
        starting.lock();
        try {
            stop();
        } finally {
            starting.unlock();
        }
    }
}
