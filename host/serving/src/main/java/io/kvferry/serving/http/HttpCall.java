// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.DefaultHttpContent;
import io.netty.handler.codec.http.DefaultHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpHeaders;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.LastHttpContent;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.concurrent.Future;

import org.jspecify.annotations.Nullable;

import tools.jackson.databind.JsonNode;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.regex.Pattern;

/// One request being worked on: its body, read already, and the response, sent once.
///
/// Threading: the handler's thread, except [#onCancel], [#isCancelled] and [#cancel], which any
/// thread may use.
public final class HttpCall {
    private static final Pattern GOOD_ID = Pattern.compile("[\\x21-\\x7e]{1,200}");

    private final HttpConnection connection;
    private final Channel channel;
    private final HttpRequest request;
    private final HttpLimits limits;
    private final byte[] body;
    private final String requestId;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition writable = lock.newCondition();
    private final List<Runnable> onCancel = new ArrayList<>();
    private final AtomicReference<@Nullable Runnable> slot = new AtomicReference<>();
    private boolean cancelled;
    private volatile int status;
    private @Nullable ChannelFuture lastWrite;
    private long unsentBytes;
    private boolean streaming;

    HttpCall(
            HttpConnection connection,
            Channel channel,
            HttpRequest request,
            byte[] body,
            HttpLimits limits) {
        this.connection = connection;
        this.channel = channel;
        this.request = request;
        this.body = body;
        this.limits = limits;
        this.requestId =
                header("X-Request-Id")
                        .filter(id -> GOOD_ID.matcher(id).matches())
                        .orElseGet(() -> UUID.randomUUID().toString());
    }

    /// @param release gives back the slot that the call has taken
    void holdSlot(Runnable release) {
        slot.set(release);
    }

    /// Before the last of a response goes out, for its client may ask again on another connection
    /// at once; when the handler has returned at the latest.
    void releaseSlot() {
        var release = slot.getAndSet(null);
        if (release != null) {
            release.run();
        }
    }

    /// The body, not a copy.
    public byte[] body() {
        return body;
    }

    /// The client's X-Request-Id where it is usable (printable ASCII, at most 200 characters), else
    /// one of ours.
    public String requestId() {
        return requestId;
    }

    public Optional<String> header(String name) {
        return Optional.ofNullable(request.headers().get(name));
    }

    public String method() {
        return request.method().name();
    }

    /// Path and query as they were sent.
    public String target() {
        return request.uri();
    }

    /// The path alone.
    public String path() {
        return pathOf(request.uri());
    }

    static String pathOf(String target) {
        int query = target.indexOf('?');
        return query < 0 ? target : target.substring(0, query);
    }

    /// The client's address.
    public InetAddress remoteAddress() {
        return channel.remoteAddress() instanceof InetSocketAddress address
                ? address.getAddress()
                : InetAddress.getLoopbackAddress();
    }

    /// Whether a status line has been sent. After that a failure can only break the stream.
    public boolean answered() {
        return status != 0;
    }

    /// The status that was sent, 0 before.
    int status() {
        return status;
    }

    public void respond(int status, String contentType, byte[] content) throws IOException {
        var response =
                new DefaultFullHttpResponse(
                        HttpVersion.HTTP_1_1,
                        HttpResponseStatus.valueOf(status),
                        Unpooled.wrappedBuffer(content));
        head(response.headers(), contentType);
        response.headers().set(HttpHeaderNames.CONTENT_LENGTH, content.length);
        this.status = status;
        unsentBytes = content.length;
        releaseSlot();
        write(response);
    }

    public void respondJson(int status, JsonNode json) throws IOException {
        respond(status, "application/json", Json.text(json).getBytes(StandardCharsets.UTF_8));
    }

    public void respondText(int status, String contentType, String text) throws IOException {
        respond(status, contentType, text.getBytes(StandardCharsets.UTF_8));
    }

    void respondProblem(HttpProblem problem) throws IOException {
        answerWith(problem);
        if (!channel.isActive()) {
            throw new IOException("the client hung up");
        }
    }

    /// Answers with a problem, and ends the call where no handler does.
    void answerWith(HttpProblem problem) {
        var response = HttpConnection.problemResponse(problem);
        response.headers().set("X-Request-Id", requestId);
        keepAlive(response.headers());
        status = problem.status();
        unsentBytes = response.content().readableBytes();
        releaseSlot();
        lastWrite = channel.writeAndFlush(response);
    }

    /// Starts a response of unknown length; what is written goes out with each flush, which waits
    /// for a client that reads more slowly than it comes. Closing it ends the response when the
    /// handler returns; when the handler throws, the connection is cut instead.
    public OutputStream stream(int status, String contentType) throws IOException {
        var response =
                new DefaultHttpResponse(HttpVersion.HTTP_1_1, HttpResponseStatus.valueOf(status));
        head(response.headers(), contentType);
        response.headers().set(HttpHeaderNames.CACHE_CONTROL, "no-cache");
        if (request.protocolVersion().isKeepAliveDefault()) {
            HttpUtil.setTransferEncodingChunked(response, true);
        }
        this.status = status;
        streaming = true;
        unsentBytes = HttpService.WATER_MARK.high();
        write(response);
        return new Stream();
    }

    private void head(HttpHeaders headers, String contentType) {
        headers.set(HttpHeaderNames.CONTENT_TYPE, contentType).set("X-Request-Id", requestId);
        keepAlive(headers);
    }

    private void keepAlive(HttpHeaders headers) {
        if (!HttpUtil.isKeepAlive(request)) {
            headers.set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
        }
    }

    private void write(Object message) throws IOException {
        if (!channel.isActive()) {
            ReferenceCountUtil.release(message);
            throw new IOException("the client hung up");
        }
        lastWrite = channel.writeAndFlush(message);
    }

    /// Chunks of a response; a flush hands over what was written.
    private final class Stream extends OutputStream {
        private final ByteArrayOutputStream buffer = new ByteArrayOutputStream();

        @Override
        public void write(int b) {
            buffer.write(b);
        }

        @Override
        public void write(byte[] bytes, int from, int length) {
            buffer.write(bytes, from, length);
        }

        @Override
        public void flush() throws IOException {
            if (buffer.size() > 0) {
                awaitWritable();
                var bytes = buffer.toByteArray();
                buffer.reset();
                HttpCall.this.write(new DefaultHttpContent(Unpooled.wrappedBuffer(bytes)));
            }
        }

        @Override
        public void close() throws IOException {
            flush();
        }
    }

    private void awaitWritable() throws IOException {
        if (channel.isWritable()) {
            return;
        }
        lock.lock();
        try {
            long nanos = limits.timeFor(unsentBytes).toNanos();
            while (!channel.isWritable() && channel.isActive() && !cancelled) {
                if (nanos <= 0) {
                    channel.close();
                    throw new IOException("the client reads too slowly");
                }
                nanos = writable.awaitNanos(nanos);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("the server is shutting down");
        } finally {
            lock.unlock();
        }
    }

    /// The channel can take more, or is closed. Any thread.
    void writabilityChanged() {
        lock.lock();
        try {
            writable.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /// The handler has returned, or thrown.
    ///
    /// @param whole whether the response is all that it has to be
    /// @return completes when the response is out, or cannot be sent any more
    Future<?> end(boolean whole) {
        if (whole && streaming && channel.isActive()) {
            lastWrite = channel.writeAndFlush(LastHttpContent.EMPTY_LAST_CONTENT);
        }
        Future<?> out = lastWrite == null ? channel.newSucceededFuture() : lastWrite;
        connection.ended(channel, whole, out, unsentBytes);
        return out;
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

    /// The answer to a call that was cancelled while its client is still connected: the server
    /// stops.
    ///
    /// @throws IOException when the client has hung up
    public HttpProblem whyCancelled() throws IOException {
        if (!channel.isActive()) {
            throw new IOException("the client hung up");
        }
        return HttpProblem.of(503, "stopping", "the server is shutting down");
    }

    /// Cancels the call: the client hung up, or the server stops.
    public void cancel() {
        List<Runnable> actions;
        lock.lock();
        try {
            cancelled = true;
            writable.signalAll();
            actions = List.copyOf(onCancel);
            onCancel.clear();
        } finally {
            lock.unlock();
        }
        actions.forEach(Runnable::run);
    }
}
