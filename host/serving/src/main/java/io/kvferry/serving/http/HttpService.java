// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// The JDK's HTTP server with what a service needs around it: exact paths, bounded bodies, bounded
/// concurrency, errors in OpenAI's shape, request ids, clients that hang up noticed, and a stop
/// that lets running calls end.
///
/// Life cycle: construct (binds), [#route] each path, [#start], [#close]. Close order: new calls
/// are refused with 503, running ones get the grace time, what is left is told that its client is
/// gone, then the sockets close.
///
/// Threading: [#route] before [#start]; handlers run on one virtual thread per call.
public final class HttpService implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(HttpService.class);

    private final String name;
    private final Settings settings;
    private final HttpServer server;
    private final ExecutorService executor;
    private final Map<String, Map<String, Route>> routes = new ConcurrentHashMap<>();
    private final Semaphore slots;
    private final DisconnectWatch watch;
    private final Set<HttpCall> running = ConcurrentHashMap.newKeySet();
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition idle = lock.newCondition();
    private volatile boolean stopping;

    /// Limits of a service.
    ///
    /// @param bind where to listen; port 0 for any free one
    /// @param maxBodyBytes longest request body; beyond it 413
    /// @param maxConcurrent calls worked on at a time; beyond it 503 with Retry-After
    /// @param stopGrace how long [#close] waits for running calls
    public record Settings(
            InetSocketAddress bind, int maxBodyBytes, int maxConcurrent, Duration stopGrace) {
        public Settings {
            if (maxBodyBytes < 1 || maxConcurrent < 1) {
                throw new IllegalArgumentException(
                        "maxBodyBytes " + maxBodyBytes + ", maxConcurrent " + maxConcurrent);
            }
        }
    }

    /// Works on one call.
    @FunctionalInterface
    public interface Handler {
        /// Answers the call. An [HttpProblem] or [KvFerryException] thrown before the answer
        /// becomes an error response.
        ///
        /// @throws IOException when the client cannot be written to
        /// @throws InterruptedException when the service is being stopped
        void handle(HttpCall call) throws IOException, InterruptedException;
    }

    private record Route(boolean counted, Handler handler) {}

    /// Binds the address.
    ///
    /// @param name what the log and the threads call this service
    /// @throws KvFerryException BAD_CONFIG when the address cannot be bound
    public HttpService(String name, Settings settings) {
        // Read once by the JDK's server when it is first used: without nodelay each streamed token
        // waits for the ACK
        // of the one before it; without maxReqTime (seconds) a client that never ends its request
        // stays for ever.
        setDefault("sun.net.httpserver.nodelay", "true");
        setDefault("sun.net.httpserver.maxReqTime", "60");
        this.name = name;
        this.settings = settings;
        try {
            server = HttpServer.create(settings.bind(), 256);
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "cannot listen on "
                            + settings.bind()
                            + ": "
                            + e.getMessage()
                            + " (choose another --port)",
                    e);
        }
        slots = new Semaphore(settings.maxConcurrent());
        watch = new DisconnectWatch(name);
        executor =
                Executors.newThreadPerTaskExecutor(
                        Thread.ofVirtual().name("kvferry-http-" + name + "-", 0).factory());
        server.setExecutor(executor);
        server.createContext("/", this::dispatch);
    }

    private static void setDefault(String property, String value) {
        if (System.getProperty(property) == null) {
            System.setProperty(property, value);
        }
    }

    /// Serves `method path`; such calls count against the concurrency limit.
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

    public void start() {
        server.start();
    }

    public int port() {
        return server.getAddress().getPort();
    }

    public boolean isStopping() {
        return stopping;
    }

    /// Counted calls that are being worked on.
    public int runningCalls() {
        return running.size();
    }

    /// An exception that leaves this method makes the JDK's server cut the connection. Closing the
    /// exchange instead would end a chunked body properly, and half a stream would look whole.
    private void dispatch(HttpExchange exchange) throws IOException {
        var call = new HttpCall(exchange, new byte[0]);
        try {
            var route = find(exchange);
            if (route.counted()) {
                serveCounted(exchange, route.handler());
            } else {
                answer(new HttpCall(exchange, readBody(exchange)), route.handler());
            }
        } catch (HttpProblem problem) {
            call.respondProblem(problem);
        }
        exchange.close();
    }

    private Route find(HttpExchange exchange) {
        var path = exchange.getRequestURI().getPath();
        var methods = routes.get(path == null ? "" : path);
        if (methods == null) {
            throw HttpProblem.of(
                    404, "not_found", "no such path: " + path + "; served are " + routes.keySet());
        }
        var route = methods.get(exchange.getRequestMethod());
        if (route == null) {
            exchange.getResponseHeaders().set("Allow", String.join(", ", methods.keySet()));
            throw HttpProblem.of(
                    405,
                    "method_not_allowed",
                    path + " takes " + String.join(", ", methods.keySet()));
        }
        return route;
    }

    private void serveCounted(HttpExchange exchange, Handler handler) throws IOException {
        if (stopping) {
            exchange.getResponseHeaders().set("Connection", "close");
            throw HttpProblem.of(503, "stopping", "the server is shutting down");
        }
        if (!slots.tryAcquire()) {
            throw HttpProblem.of(
                    503,
                    "overloaded",
                    "all "
                            + settings.maxConcurrent()
                            + " request slots are taken; try again later");
        }
        try {
            var call = new HttpCall(exchange, readBody(exchange));
            running.add(call);
            watch.watch(call);
            try {
                answer(call, handler);
            } finally {
                watch.unwatch(call);
                leave(call);
            }
        } finally {
            slots.release();
        }
    }

    private byte[] readBody(HttpExchange exchange) throws IOException {
        var body = exchange.getRequestBody().readNBytes(settings.maxBodyBytes() + 1);
        if (body.length > settings.maxBodyBytes()) {
            throw HttpProblem.of(
                    413,
                    "body_too_large",
                    "the request body is longer than " + settings.maxBodyBytes() + " bytes");
        }
        return body;
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

    /// The border where whatever a handler threw becomes an answer or, too late for one, a cut
    /// stream.
    private void answer(HttpCall call, Handler handler) throws IOException {
        try {
            handler.handle(call);
        } catch (HttpProblem problem) {
            fail(call, problem);
        } catch (KvFerryException e) {
            fail(call, HttpProblem.of(e.toFailure()));
        } catch (IOException e) {
            LOG.debug("{}: client of {} is gone: {}", name, call.requestId(), e.toString());
            call.cancel();
            throw e;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            fail(call, HttpProblem.of(503, "stopping", "the server is shutting down"));
        } catch (RuntimeException e) {
            LOG.error("{}: defect while serving {}", name, call.requestId(), e);
            fail(call, HttpProblem.of(Failure.of(e)));
        }
    }

    private void fail(HttpCall call, HttpProblem problem) throws IOException {
        call.cancel();
        if (call.answered()) {
            throw new IOException(
                    "response of " + call.requestId() + " cut: " + problem.getMessage());
        }
        call.respondProblem(problem);
    }

    @Override
    public void close() {
        stopping = true;
        awaitIdle(Deadline.in(settings.stopGrace()));
        running.forEach(HttpCall::cancel);
        awaitIdle(Deadline.in(Duration.ofSeconds(2)));
        server.stop(0);
        executor.shutdownNow();
        watch.close();
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
