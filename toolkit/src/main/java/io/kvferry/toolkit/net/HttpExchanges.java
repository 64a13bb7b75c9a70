// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import io.kvferry.spi.KvFerryException;

import java.io.Closeable;
import java.io.IOException;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// HTTP exchanges with a total timeout. The timeout of an [HttpRequest] ends with the response
/// headers, so a stalled body would otherwise block forever.
///
/// Threading: any thread; blocks, at most for the limit.
public final class HttpExchanges {
    private HttpExchanges() {}

    /// Threads for the tasks of an [HttpClient]. A client whose executor refuses one task is closed
    /// for good, so a task that gets no thread runs on the thread that submits it.
    public static Executor threads(String name) {
        return threads(Thread.ofVirtual().name(name).factory());
    }

    static Executor threads(ThreadFactory threads) {
        return task -> {
            try {
                threads.newThread(task).start();
            } catch (RejectedExecutionException | OutOfMemoryError _) {
                task.run();
            }
        };
    }

    /// Sends a request and reads the whole response. An exchange that is late or interrupted is
    /// cancelled.
    ///
    /// @param limit from the call to the end of the response's body
    /// @throws HttpTimeoutException when it is over
    public static <T> HttpResponse<T> send(
            HttpClient client,
            HttpRequest request,
            HttpResponse.BodyHandler<T> body,
            Duration limit)
            throws IOException, InterruptedException {
        return await(client.sendAsync(request, body), limit);
    }

    /// As [#send(HttpClient, HttpRequest, HttpResponse.BodyHandler, Duration)], until it is
    /// cancelled.
    ///
    /// @throws KvFerryException when it is
    public static <T> HttpResponse<T> send(
            HttpClient client,
            HttpRequest request,
            HttpResponse.BodyHandler<T> body,
            Duration limit,
            Cancellation cancellation)
            throws IOException, InterruptedException {
        cancellation.check();
        var exchange = client.sendAsync(request, body);
        Closeable end = () -> exchange.cancel(true);
        try {
            cancellation.begin(end);
            return await(exchange, limit);
        } catch (IOException | CancellationException e) {
            cancellation.check();
            throw e;
        } finally {
            cancellation.end(end);
            exchange.cancel(true);
        }
    }

    private static <T> HttpResponse<T> await(
            CompletableFuture<HttpResponse<T>> exchange, Duration limit)
            throws IOException, InterruptedException {
        try {
            return exchange.get(limit.toNanos(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            var late = new HttpTimeoutException("no whole answer within " + limit);
            late.initCause(e);
            throw late;
        } catch (ExecutionException e) {
            if (e.getCause() instanceof IOException cause) {
                throw cause;
            }
            throw new IOException(e.getCause());
        } finally {
            exchange.cancel(true); // nothing, when it is over
        }
    }
}
