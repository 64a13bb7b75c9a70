// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import com.sun.net.httpserver.HttpExchange;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.locks.ReentrantLock;
import java.util.regex.Pattern;

/// One request on its way: its body, read already, and the response, sent once.
///
/// Threading: the handler's thread, except [#onCancel], [#isCancelled] and [#cancel], which any
/// thread may use.
public final class HttpCall {
    private static final Pattern GOOD_ID = Pattern.compile("[\\x21-\\x7e]{1,200}");

    private final HttpExchange exchange;
    private final byte[] body;
    private final String requestId;
    private final ReentrantLock lock = new ReentrantLock();
    private final List<Runnable> onCancel = new ArrayList<>();
    private boolean cancelled;
    private boolean answered;

    HttpCall(HttpExchange exchange, byte[] body) {
        this.exchange = exchange;
        this.body = body;
        this.requestId =
                header("X-Request-Id")
                        .filter(id -> GOOD_ID.matcher(id).matches())
                        .orElseGet(() -> UUID.randomUUID().toString());
    }

    public byte[] body() {
        return body.clone();
    }

    /// The client's X-Request-Id where it is usable (printable ASCII, at most 200 characters), else
    /// one of ours.
    public String requestId() {
        return requestId;
    }

    public Optional<String> header(String name) {
        return Optional.ofNullable(exchange.getRequestHeaders().getFirst(name));
    }

    public String method() {
        return exchange.getRequestMethod();
    }

    /// Path and query as they were sent.
    public String target() {
        return exchange.getRequestURI().toString();
    }

    /// The client's address.
    public InetAddress remoteAddress() {
        return exchange.getRemoteAddress().getAddress();
    }

    /// Whether a status line has been sent, after which no other outcome can be told than a broken
    /// stream.
    public boolean answered() {
        return answered;
    }

    public void respond(int status, String contentType, byte[] content) throws IOException {
        head(contentType);
        answered = true;
        // -1 means "no body" to the JDK's server, 0 means "chunked"
        exchange.sendResponseHeaders(status, content.length == 0 ? -1 : content.length);
        try (var out = exchange.getResponseBody()) {
            out.write(content);
        }
    }

    public void respondJson(int status, JsonNode json) throws IOException {
        respond(status, "application/json", Json.text(json).getBytes(StandardCharsets.UTF_8));
    }

    public void respondText(int status, String contentType, String text) throws IOException {
        respond(status, contentType, text.getBytes(StandardCharsets.UTF_8));
    }

    void respondProblem(HttpProblem problem) throws IOException {
        problem.retryAfterSeconds()
                .ifPresent(value -> exchange.getResponseHeaders().set("Retry-After", value));
        if (problem.status() == 413) {
            exchange.getResponseHeaders().set("Connection", "close");
        }
        respondText(problem.status(), "application/json", problem.toJson());
    }

    /// Starts a response of unknown length; what is written goes out with each flush.
    public OutputStream stream(int status, String contentType) throws IOException {
        head(contentType);
        exchange.getResponseHeaders().set("Cache-Control", "no-cache");
        answered = true;
        exchange.sendResponseHeaders(status, 0);
        return exchange.getResponseBody();
    }

    private void head(String contentType) {
        var headers = exchange.getResponseHeaders();
        headers.set("Content-Type", contentType);
        headers.set("X-Request-Id", requestId);
    }

    /// Runs `action` once when the client has hung up or the server gives up waiting for this call;
    /// at once when that has happened already. The action must not block.
    public void onCancel(Runnable action) {
        lock.lock();
        try {
            if (!cancelled) {
                onCancel.add(action);
                return;
            }
        } finally {
            lock.unlock();
        }
        action.run();
    }

    public boolean isCancelled() {
        lock.lock();
        try {
            return cancelled;
        } finally {
            lock.unlock();
        }
    }

    /// Cancels the call: a write failed, the [DisconnectWatch] found the connection closed, or the
    /// server stops.
    public void cancel() {
        List<Runnable> actions;
        lock.lock();
        try {
            cancelled = true;
            actions = List.copyOf(onCancel);
            onCancel.clear();
        } finally {
            lock.unlock();
        }
        actions.forEach(Runnable::run);
    }

    TcpConnection connection() {
        return new TcpConnection(exchange.getLocalAddress(), exchange.getRemoteAddress());
    }
}
