// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.Json;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.secret.HttpSignature;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.databind.node.ObjectNode;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.ConnectException;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;

/// One request to one instance: sent, waited for within a deadline, read, and cancelled from
/// outside when the client disconnects or the other leg fails. Cancelling closes the connection, by
/// which the instance notices it.
///
/// Threading: one thread calls [#send] and reads; [#cancel] from any thread, at any time.
final class Leg implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Leg.class);

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
                        .header("X-Request-Id", job.call().requestId())
                        .POST(BodyPublishers.ofByteArray(bytes));
        secret.ifPresent(key ->
                request.header(
                        HttpSignature.HEADER,
                        HttpSignature.sign(key, "POST", uri.getRawPath(), bytes)));
        job.call()
                .header("Authorization")
                .ifPresent(value -> request.header("Authorization", value));
        for (int i = 0; i + 1 < extra.length; i += 2) {
            request.header(extra[i], extra[i + 1]);
        }
        var limit = Deadline.in(firstByte);
        var response = send(request.build(), limit, true);
        lock.lock();
        try {
            body = response.body();
            refuseIfCancelled();
        } finally {
            lock.unlock();
        }
        return response;
    }

    /// @param again whether to send once more when a connection that rested turns out to be closed:
    ///   the instance may close it at any time, and a POST is not sent again by the client itself
    private HttpResponse<InputStream> send(HttpRequest request, Deadline limit, boolean again)
            throws LegException, InterruptedException {
        CompletableFuture<HttpResponse<InputStream>> future;
        lock.lock();
        try {
            refuseIfCancelled();
            future = client.sendAsync(request, BodyHandlers.ofInputStream());
            pending = future;
        } finally {
            lock.unlock();
        }
        try {
            return await(future, limit);
        } catch (LegException e) {
            if (again && e.isBroken() && closedBeforeTheFirstByte(future)) {
                LOG.debug("{}: sent again: {}", upstream, e.getMessage());
                return send(request, limit, false);
            }
            throw e;
        }
    }

    private static boolean closedBeforeTheFirstByte(CompletableFuture<?> future) {
        if (!future.isCompletedExceptionally() || future.isCancelled()) {
            return false;
        }
        for (Throwable t = future.exceptionNow(); t != null; t = t.getCause()) {
            if (t instanceof EOFException) {
                return true;
            }
        }
        return false;
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
            boolean unreached =
                    thrown instanceof ConnectException
                            || thrown instanceof HttpConnectTimeoutException;
            throw new LegException(
                    unreached ? LegException.Cause.UNREACHED : LegException.Cause.BROKEN,
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

    /// Reads what is there of a stream, at least one byte; -1 at its end.
    int read(HttpResponse<InputStream> response, byte[] buffer) throws LegException {
        try {
            int n = response.body().read(buffer);
            lastByteNanos = System.nanoTime();
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

    /// From now on cancels the leg when no byte came for `idle`, or when the deadline passes.
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

    /// Stops watching when closed.
    interface IdleWatch extends AutoCloseable {
        @Override
        void close();
    }

    /// Cancels the request; a thread that waits for it gets a [LegException] with this reason.
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
