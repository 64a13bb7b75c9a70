// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.Json;
import io.kvferry.serving.http.TransferTrust;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.secret.FleetSecret;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.node.ObjectNode;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.ConnectException;
import java.net.SocketException;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;

/// One request to one instance, with a deadline. It is cancelled when the client disconnects or the
/// other leg fails; cancelling closes the connection, so that the instance aborts the request.
///
/// Threading: one thread calls [#send] and reads; [#cancel] from any thread, at any time.
final class Leg implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Leg.class);

    /// By its value kvferry's server refuses a leg that it has received before.
    private static final String ID_HEADER = "X-Kvferry-Leg";

    private static final int ALREADY_RECEIVED = 409;

    /// The JDK's client says so, and no other way, where a response has not begun.
    private static final String NO_BYTE = "received no bytes";

    private final Upstream upstream;
    private final HttpClient client;
    private final ScheduledExecutorService timer;
    private final Deadline deadline;
    private final Optional<FleetSecret> secret;
    private final ReentrantLock lock = new ReentrantLock();
    private final long startNanos = System.nanoTime();
    private @Nullable CompletableFuture<HttpResponse<InputStream>> pending;
    private @Nullable InputStream body;
    private LegException.@Nullable Cause cause;
    private String cancelled = "";
    private volatile long lastByteNanos;

    /// @param secret signs the request where there is one
    Leg(
            Upstream upstream,
            HttpClient client,
            ScheduledExecutorService timer,
            Deadline deadline,
            Optional<FleetSecret> secret) {
        this.upstream = upstream;
        this.secret = secret;
        this.client = client;
        this.timer = timer;
        this.deadline = deadline;
        upstream.requests.increment();
        upstream.inFlight.incrementAndGet();
    }

    /// Sends `json` and waits for status and headers.
    ///
    /// @param firstByte longest wait for them
    /// @param extra more headers: name, value, ...
    /// @throws LegException when the instance cannot be reached or did not answer in time
    HttpResponse<InputStream> send(Job job, ObjectNode json, Duration firstByte, String... extra)
            throws LegException, InterruptedException {
        var bytes = Json.text(json).getBytes(StandardCharsets.UTF_8);
        var uri = upstream.at(job.path());
        var request =
                HttpRequest.newBuilder(uri)
                        .header("Content-Type", "application/json")
                        .header(
                                "X-Request-Id",
                                TransferTrust.withoutEngines(job.call().requestId()))
                        .header(ID_HEADER, UUID.randomUUID().toString())
                        .POST(BodyPublishers.ofByteArray(bytes));
        job.call()
                .header("Authorization")
                .ifPresent(value -> request.header("Authorization", value));
        for (int i = 0; i + 1 < extra.length; i += 2) {
            request.header(extra[i], extra[i + 1]);
        }
        Backends.sign(secret, request, uri, bytes);
        var limit = Deadline.in(firstByte);
        var response = sendOnceOrTwice(request.build(), limit);
        upstream.heard();
        lock.lock();
        try {
            body = response.body();
            refuseIfCancelled();
        } finally {
            lock.unlock();
        }
        return response;
    }

    /// Sends the request, and retries once if the connection broke before the first byte of a
    /// response: an instance may close an idle connection at any time, and the HTTP client does not
    /// retry a POST. An engine that had received the first request refuses the second one by its
    /// id.
    private HttpResponse<InputStream> sendOnceOrTwice(HttpRequest request, Deadline limit)
            throws LegException, InterruptedException {
        var first = start(request);
        try {
            return await(first, limit);
        } catch (LegException e) {
            if (!e.isBroken() || !closedBeforeTheFirstByte(first)) {
                throw e;
            }
            LOG.debug("{}: sent again: {}", upstream, e.getMessage());
            return sendAgain(request, limit, e);
        }
    }

    /// @param before why the first one failed
    private HttpResponse<InputStream> sendAgain(
            HttpRequest request, Deadline limit, LegException before)
            throws LegException, InterruptedException {
        try {
            var response = await(start(request), limit);
            if (response.statusCode() != ALREADY_RECEIVED) {
                return response;
            }
            closeQuietly(response.body());
        } catch (LegException e) {
            // Unreached now, but the instance may have received the first one.
            if (e.started()) {
                throw e;
            }
        }
        throw before;
    }

    private CompletableFuture<HttpResponse<InputStream>> start(HttpRequest request)
            throws LegException {
        lock.lock();
        try {
            refuseIfCancelled();
            var future = client.sendAsync(request, BodyHandlers.ofInputStream());
            pending = future;
            return future;
        } finally {
            lock.unlock();
        }
    }

    /// Whether the connection was closed or reset before any byte of a response.
    private static boolean closedBeforeTheFirstByte(CompletableFuture<?> future) {
        if (!future.isCompletedExceptionally() || future.isCancelled()) {
            return false;
        }
        boolean closed = false;
        boolean noByte = false;
        for (Throwable t = future.exceptionNow(); t != null; t = t.getCause()) {
            closed |= t instanceof EOFException || t instanceof SocketException;
            noByte |= String.valueOf(t.getMessage()).contains(NO_BYTE);
        }
        return closed && noByte;
    }

    private void refuseIfCancelled() throws LegException {
        if (cause != null) {
            throw new LegException(cause, upstream + ": " + cancelled);
        }
    }

    private HttpResponse<InputStream> await(
            CompletableFuture<HttpResponse<InputStream>> future, Deadline firstByte)
            throws LegException, InterruptedException {
        try {
            var limit = deadline.earlier(firstByte);
            return future.get(Math.max(0, limit.remainingNanos()), TimeUnit.NANOSECONDS);
        } catch (ExecutionException e) {
            var thrown = e.getCause() == null ? e : e.getCause();
            lock.lock();
            try {
                refuseIfCancelled();
            } finally {
                lock.unlock();
            }
            boolean late = thrown instanceof HttpConnectTimeoutException;
            boolean unreached = thrown instanceof ConnectException || late;
            throw new LegException(
                    unreached ? unreached(late) : LegException.Cause.BROKEN,
                    upstream + ": " + reason(thrown, unreached));
        } catch (TimeoutException e) {
            if (deadline.passed()) {
                cancel(LegException.Cause.DEADLINE, "no answer before the deadline");
            } else {
                cancel(LegException.Cause.SILENT, "no answer within the first-byte limit");
            }
            throw broken(new IOException(e));
        } catch (CancellationException e) {
            throw broken(new IOException(e));
        }
    }

    /// @param late whether no connection came about in time; whoever answers others meanwhile is
    ///   busy, or its port is attacked
    private LegException.Cause unreached(boolean late) {
        return late && upstream.heardSince(startNanos)
                ? LegException.Cause.BUSY
                : LegException.Cause.UNREACHED;
    }

    private static String reason(Throwable thrown, boolean unreached) {
        var text =
                thrown.getMessage() == null
                        ? thrown.getClass().getSimpleName()
                        : thrown.getMessage();
        return unreached ? "cannot connect (" + text + ")" : text;
    }

    /// Reads the whole body.
    ///
    /// @throws LegException when it ends early, comes too late or is longer than `limit`
    private byte[] readAll(HttpResponse<InputStream> response, int limit) throws LegException {
        var watch =
                timer.schedule(
                        () ->
                                cancel(
                                        LegException.Cause.DEADLINE,
                                        "the response did not end before the deadline"),
                        Math.max(0, deadline.remainingNanos()),
                        TimeUnit.NANOSECONDS);
        try {
            var bytes = response.body().readNBytes(limit + 1);
            if (bytes.length > limit) {
                throw new LegException(
                        LegException.Cause.BROKEN,
                        upstream + ": the response is longer than " + limit + " bytes");
            }
            return bytes;
        } catch (LegException e) {
            throw e;
        } catch (IOException e) {
            throw broken(e);
        } finally {
            watch.cancel(false);
        }
    }

    /// Reads a whole response.
    ///
    /// @throws LegException as [#readAll]
    Answer readAnswer(HttpResponse<InputStream> response, int limit) throws LegException {
        var type = response.headers().firstValue("Content-Type").orElse("application/json");
        return new Answer(response.statusCode(), type, readAll(response, limit));
    }

    /// Reads the bytes of a stream that are available, at least one.
    ///
    /// @return how many, -1 at the end
    int read(HttpResponse<InputStream> response, byte[] buffer) throws LegException {
        try {
            int n = response.body().read(buffer);
            lastByteNanos = System.nanoTime();
            upstream.heard();
            return n;
        } catch (IOException e) {
            throw broken(e);
        }
    }

    private LegException broken(IOException e) {
        lock.lock();
        try {
            return cause == null
                    ? new LegException(LegException.Cause.BROKEN, upstream + ": " + e.getMessage())
                    : new LegException(cause, upstream + ": " + cancelled);
        } finally {
            lock.unlock();
        }
    }

    /// Cancels the leg when no byte arrives for `idle`, or when the deadline passes.
    IdleWatch watchIdle(Duration idle) {
        lastByteNanos = System.nanoTime();
        long period = Math.max(1, Math.min(idle.toMillis() / 4, 1000));
        var task =
                timer.scheduleWithFixedDelay(
                        () -> {
                            if (System.nanoTime() - lastByteNanos > idle.toNanos()) {
                                cancel(
                                        LegException.Cause.SILENT,
                                        "silent for " + idle.toMillis() + " ms");
                            } else if (deadline.passed()) {
                                cancel(
                                        LegException.Cause.DEADLINE,
                                        "the request's deadline passed");
                            }
                        },
                        period,
                        period,
                        TimeUnit.MILLISECONDS);
        return () -> task.cancel(false);
    }

    /// Closing it stops the watch.
    interface IdleWatch extends AutoCloseable {
        @Override
        void close();
    }

    /// Cancels the request. The thread that waits for it gets a [LegException] with this reason.
    void cancel(String reason) {
        cancel(LegException.Cause.CANCELLED, reason);
    }

    private void cancel(LegException.Cause why, String reason) {
        CompletableFuture<?> future;
        InputStream stream;
        lock.lock();
        try {
            if (cause == null) {
                cause = why;
                cancelled = reason;
            }
            future = pending;
            stream = body;
        } finally {
            lock.unlock();
        }
        if (future != null) {
            future.cancel(true);
        }
        closeQuietly(stream);
    }

    private static void closeQuietly(@Nullable InputStream stream) {
        if (stream == null) {
            return;
        }
        try {
            stream.close();
        } catch (IOException e) {
            // the connection is closed in both cases
            LOG.trace("closing a response body", e);
        }
    }

    @Override
    public void close() {
        upstream.inFlight.decrementAndGet();
        upstream.legEnded(System.nanoTime() - startNanos);
        cancel("ended"); // a no-op for what was read to its end
    }
}
