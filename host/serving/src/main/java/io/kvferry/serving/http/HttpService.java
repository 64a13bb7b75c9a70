// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.serving.metrics.HttpMetrics;
import io.kvferry.serving.metrics.MetricsPage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.ssl.SslContext;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// An HTTP/1.1 server on Netty with exact paths, bounded bodies, bounded concurrency, errors in
/// OpenAI's JSON form and request ids. A client that disconnects cancels its call at once; closing
/// the server lets running calls end.
///
/// A call takes a slot when its body has been received and releases it when its response is
/// complete or its handler returns. A client that sends or reads slowly holds a slot no longer than
/// [HttpLimits] allow.
///
/// Life cycle: construct (binds; answers 503 until it is started), [#route] each path, [#start],
/// [#close]. Close order: new calls are refused with 503, running ones get the grace time, what is
/// left is cancelled, then the sockets close.
///
/// Threading: [#route] before [#start]; handlers run on one virtual thread per call. Owns two
/// event-loop threads, `kvferry-http-NAME-io-N`.
public final class HttpService implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(HttpService.class);
    private static final Logger ACCESS = LoggerFactory.getLogger("kvferry.access");

    /// Unsent bytes of a response beyond which its handler waits for the client.
    static final WriteBufferWaterMark WATER_MARK = new WriteBufferWaterMark(32 << 10, 64 << 10);

    private static final int MAX_LINE = 8 << 10;
    private static final int MAX_HEADERS = 64 << 10;
    private static final int MAX_CHUNK = 64 << 10;
    private static final int IO_THREADS = 2;

    /// Connections that wait to be accepted; the system may allow less.
    private static final int BACKLOG = 4096;

    /// Time that interrupted handlers have to end before the sending threads end.
    private static final long HANDLERS_END_SECONDS = 2;

    private final String name;
    private final Settings settings;
    private final MultiThreadIoEventLoopGroup io;
    private final Channel listener;
    private final ExecutorService executor;
    private final Map<String, Map<String, Route>> routes = new ConcurrentHashMap<>();
    private final Semaphore slots;

    /// Made ahead: a slot that was taken must not wait for memory to be given back.
    private final Runnable giveSlot;

    private final HttpConnections connections;
    private final Set<HttpCall> running = ConcurrentHashMap.newKeySet();
    private final Map<Integer, LongAdder> responses = new ConcurrentHashMap<>();
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition idle = lock.newCondition();
    private volatile boolean started;
    private volatile boolean stopping;

    /// Settings of a service.
    ///
    /// @param bind where to listen; port 0 for any free one
    /// @param maxBodyBytes longest request body; beyond it 413
    /// @param maxConcurrent calls worked on at a time; beyond it 503 with Retry-After
    /// @param stopGrace how long [#close] waits for running calls
    /// @param apiKey what clients of [#route] paths have to present as bearer token; empty for none
    /// @param tls certificate and key; plain HTTP without
    public record Settings(
            InetSocketAddress bind,
            int maxBodyBytes,
            int maxConcurrent,
            Duration stopGrace,
            HttpLimits limits,
            String apiKey,
            Optional<SslContext> tls) {
        public Settings {
            if (maxBodyBytes < 1 || maxConcurrent < 1) {
                throw new IllegalArgumentException(
                        "maxBodyBytes " + maxBodyBytes + ", maxConcurrent " + maxConcurrent);
            }
        }

        /// The default limits, no API key, plain HTTP.
        public Settings(
                InetSocketAddress bind, int maxBodyBytes, int maxConcurrent, Duration stopGrace) {
            this(
                    bind,
                    maxBodyBytes,
                    maxConcurrent,
                    stopGrace,
                    HttpLimits.defaults(),
                    "",
                    Optional.empty());
        }

        public String scheme() {
            return tls.isPresent() ? "https" : "http";
        }

        /// The same somewhere else.
        public Settings at(InetSocketAddress other) {
            return new Settings(other, maxBodyBytes, maxConcurrent, stopGrace, limits, apiKey, tls);
        }

        /// Without the key.
        @Override
        public String toString() {
            return scheme() + "://" + bind + ", " + limits;
        }
    }

    /// Handles one call.
    @FunctionalInterface
    public interface Handler {
        /// Sends the response. An [HttpProblem] or [KvFerryException] thrown before it becomes an
        /// error response; an exception after it has begun closes the connection.
        ///
        /// @throws IOException when the client cannot be written to
        /// @throws InterruptedException when the service is being stopped
        void handle(HttpCall call) throws IOException, InterruptedException;
    }

    /// @param counted whether a call takes a slot and needs the API key
    record Route(boolean counted, Handler handler) {}

    /// Binds the address.
    ///
    /// @param name what the log and the threads call this service
    /// @throws KvFerryException BAD_CONFIG when the address cannot be bound
    public HttpService(String name, Settings settings) {
        this(name, settings, Thread.ofVirtual().name("kvferry-http-" + name + "-", 0).factory());
    }

    /// @param handlers makes the thread of each call
    HttpService(String name, Settings settings, ThreadFactory handlers) {
        this.name = name;
        this.settings = settings;
        slots = new Semaphore(settings.maxConcurrent());
        giveSlot = slots::release;
        connections = new HttpConnections(settings.limits());
        executor = Executors.newThreadPerTaskExecutor(handlers);
        ThreadFactory threads =
                Thread.ofPlatform().daemon().name("kvferry-http-" + name + "-io-", 0).factory();
        io = new MultiThreadIoEventLoopGroup(IO_THREADS, threads, NioIoHandler.newFactory());
        listener = bind();
    }

    private Channel bind() {
        var bootstrap =
                new ServerBootstrap()
                        .group(io)
                        .channel(NioServerSocketChannel.class)
                        .option(ChannelOption.SO_BACKLOG, BACKLOG)
                        .option(ChannelOption.SO_REUSEADDR, true)
                        .childOption(ChannelOption.TCP_NODELAY, true)
                        .childOption(ChannelOption.WRITE_BUFFER_WATER_MARK, WATER_MARK)
                        .childHandler(
                                new ChannelInitializer<SocketChannel>() {
                                    @Override
                                    protected void initChannel(SocketChannel channel) {
                                        settings.tls()
                                                .ifPresent(tls ->
                                                        channel.pipeline()
                                                                .addLast(
                                                                        tls.newHandler(
                                                                                channel.alloc())));
                                        channel.pipeline()
                                                .addLast(
                                                        new HttpServerCodec(
                                                                MAX_LINE, MAX_HEADERS, MAX_CHUNK))
                                                .addLast(new HttpConnection(HttpService.this));
                                    }
                                });
        var bound = bootstrap.bind(settings.bind()).awaitUninterruptibly();
        if (bound.isSuccess()) {
            return bound.channel();
        }
        io.shutdownGracefully(0, 0, TimeUnit.SECONDS);
        throw new KvFerryException(
                ErrorCode.BAD_CONFIG,
                "cannot listen on "
                        + settings.bind()
                        + ": "
                        + bound.cause().getMessage()
                        + " (choose another --port, or as --host an address of this machine)",
                bound.cause());
    }

    /// Serves `method path`, or everything below a path that ends in `/*`; such calls need a slot
    /// and the API key.
    public void route(String method, String path, Handler handler) {
        routes.computeIfAbsent(path, _ -> new ConcurrentHashMap<>())
                .put(method, new Route(true, handler));
    }

    /// Serves GET of a path that must answer even when the service is full or stopping.
    public void routeAdmin(String path, Handler handler) {
        routeAdmin("GET", path, handler);
    }

    /// Serves `method` of a path that must answer even when the service is full or stopping.
    public void routeAdmin(String method, String path, Handler handler) {
        routes.computeIfAbsent(path, _ -> new ConcurrentHashMap<>())
                .put(method, new Route(false, handler));
    }

    /// Serves `/metrics`, in the format that the scraper asks for.
    public void routeMetrics(MetricsPage page) {
        routeAdmin(
                "/metrics",
                call -> {
                    var written = page.write(call.header("Accept").orElse(""));
                    call.respond(200, written.contentType(), written.body());
                });
    }

    /// The service's counters.
    public HttpMetrics.Figures figures() {
        var byStatus = new TreeMap<Integer, Long>();
        responses.forEach((status, count) -> byStatus.put(status, count.sum()));
        return new HttpMetrics.Figures(runningCalls(), connections.count(), byStatus);
    }

    /// @param status 0 for a response that was cut short
    void count(int status) {
        responses.computeIfAbsent(status, _ -> new LongAdder()).increment();
    }

    public void start() {
        started = true;
    }

    public int port() {
        return ((InetSocketAddress) listener.localAddress()).getPort();
    }

    /// Where it listens, as the beginning of a URL.
    public String url() {
        return settings.scheme() + "://" + settings.bind().getHostString() + ":" + port();
    }

    public boolean isStopping() {
        return stopping;
    }

    /// Calls with a slot.
    public int runningCalls() {
        return running.size();
    }

    HttpConnections connections() {
        return connections;
    }

    Settings settings() {
        return settings;
    }

    /// The route of a request's head, before its body is read.
    ///
    /// @param path without the query
    /// @throws HttpProblem 404, 405, 401 or 503
    Route find(String method, String path, String authorization) {
        if (!started) {
            throw HttpProblem.of(503, "starting", "the server is starting; try again later");
        }
        var methods = methodsOf(path);
        if (methods == null) {
            throw HttpProblem.of(
                    404, "not_found", "no such path: " + path + "; served are " + routes.keySet());
        }
        var route = methods.get(method);
        if (route == null) {
            throw HttpProblem.of(
                    405,
                    "method_not_allowed",
                    path + " takes " + String.join(", ", methods.keySet()));
        }
        // As in vLLM, the key protects the API, not health and metrics.
        if (path.startsWith("/v1/") || route.counted()) {
            checkKey(authorization);
        }
        if (route.counted() && stopping) {
            throw HttpProblem.of(503, "stopping", "the server is shutting down");
        }
        return route;
    }

    /// The routes of the path, or those of `ABOVE/*`.
    private @Nullable Map<String, Route> methodsOf(String path) {
        var found = routes.get(path);
        for (int slash = path.lastIndexOf('/');
                found == null && slash > 0;
                slash = path.lastIndexOf('/', slash - 1)) {
            found = routes.get(path.substring(0, slash) + "/*");
        }
        return found;
    }

    private void checkKey(String authorization) {
        var expected = "Bearer " + settings.apiKey();
        if (!settings.apiKey().isEmpty()
                && !MessageDigest.isEqual(utf8(expected), utf8(authorization))) {
            throw HttpProblem.of(
                    401,
                    "invalid_api_key",
                    "this server requires its API key: Authorization: Bearer KEY");
        }
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /// Starts the handler of a call whose body has been received.
    ///
    /// @throws HttpProblem 503 when all slots are taken, or when there is no thread for the call
    void dispatch(HttpCall call, Route route) {
        if (route.counted() && !slots.tryAcquire()) {
            throw HttpProblem.of(
                    503,
                    "overloaded",
                    "all "
                            + settings.maxConcurrent()
                            + " request slots are taken; try again later");
        }
        boolean begun = false;
        try {
            if (route.counted()) {
                call.holdSlot(giveSlot);
                running.add(call);
            }
            executor.execute(() -> work(call, route));
            begun = true;
        } catch (RejectedExecutionException | OutOfMemoryError e) {
            throw HttpProblem.of(
                    503, "overloaded", "no thread for the request (" + e + "); try again later");
        } finally {
            if (!begun && route.counted()) {
                call.releaseSlot();
                leave(call);
            }
        }
    }

    private void work(HttpCall call, Route route) {
        long start = System.nanoTime();
        boolean whole = false;
        try {
            whole = answer(call, route.handler());
        } finally {
            call.releaseSlot();
            var out = call.end(whole);
            count(whole ? call.status() : 0);
            if (route.counted()) {
                // Only when the response has been sent: close() waits for this.
                if (out.isDone()) {
                    leave(call); // also when the event loop, which tells listeners, has ended
                } else {
                    out.addListener(_ -> leave(call));
                }
                ACCESS.info(
                        "{} {} {} {} {} ms{} {}",
                        call.remoteAddress().getHostAddress(),
                        call.method(),
                        call.target(),
                        call.status(),
                        (System.nanoTime() - start) / 1_000_000,
                        whole ? "" : " cut",
                        call.requestId());
            }
        }
    }

    private void leave(HttpCall call) {
        lock.lock();
        try {
            running.remove(call);
            idle.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /// Runs the handler. An exception becomes an error response or, when the response has begun,
    /// closes the connection.
    ///
    /// @return whether the client got a whole response
    private boolean answer(HttpCall call, Handler handler) {
        try {
            handler.handle(call);
            return call.answered();
        } catch (HttpProblem problem) {
            return fail(call, problem);
        } catch (KvFerryException e) {
            return fail(call, HttpProblem.of(Failure.of(e)));
        } catch (IOException e) {
            LOG.debug("{}: {} ended early: {}", name, call.requestId(), e.toString());
            call.cancel();
            return false;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return fail(call, HttpProblem.of(503, "stopping", "the server is shutting down"));
        } catch (RuntimeException | Error e) {
            LOG.error("{}: defect while serving {}", name, call.requestId(), e);
            return fail(
                    call,
                    HttpProblem.of(new Failure(ErrorCode.INTERNAL, "a defect in kvferry: " + e)));
        }
    }

    private boolean fail(HttpCall call, HttpProblem problem) {
        call.cancel();
        if (call.answered()) {
            LOG.warn("response of {} cut: {}", call.requestId(), problem.getMessage());
            return false;
        }
        try {
            call.respondProblem(problem);
            return true;
        } catch (IOException e) {
            LOG.debug("{}: cannot answer {}: {}", name, call.requestId(), e.toString());
            return false;
        }
    }

    @Override
    public void close() {
        stopping = true;
        awaitIdle(Deadline.in(settings.stopGrace()));
        running.forEach(HttpCall::cancel);
        awaitIdle(Deadline.in(Duration.ofSeconds(2)));
        listener.close().awaitUninterruptibly(2, TimeUnit.SECONDS);
        connections.closeAll();
        executor.shutdownNow();
        awaitHandlers();
        io.shutdownGracefully(0, 2, TimeUnit.SECONDS).awaitUninterruptibly(5, TimeUnit.SECONDS);
    }

    /// A handler that still sends when the event loops have ended makes Netty log errors.
    private void awaitHandlers() {
        try {
            if (!executor.awaitTermination(HANDLERS_END_SECONDS, TimeUnit.SECONDS)) {
                LOG.warn("{}: a request does not end; it is given up", name);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void awaitIdle(Deadline deadline) {
        lock.lock();
        try {
            while (!running.isEmpty() && !deadline.passed()) {
                if (idle.await(deadline.remainingNanos(), TimeUnit.NANOSECONDS)) {
                    continue;
                }
                return;
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            lock.unlock();
        }
    }
}
