// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.socket.DuplexChannel;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpContent;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.LastHttpContent;
import io.netty.handler.codec.http.TooLongHttpHeaderException;
import io.netty.handler.codec.http.TooLongHttpLineException;
import io.netty.handler.ssl.SslHandler;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.concurrent.Future;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Objects;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;

/// One connection: reads a request, has it worked on, and reads the next one when the response is
/// out. It keeps reading while a handler works, to notice a client that disconnects; requests that
/// come meanwhile wait, and nothing more is read then.
///
/// Threading: the channel's event loop, except what says otherwise.
final class HttpConnection extends ChannelInboundHandlerAdapter {
    private static final Logger LOG = LoggerFactory.getLogger(HttpConnection.class);
    private static final Duration RATE_CHECK = Duration.ofMillis(500);

    /// How long a refused client may go on sending before the connection is closed.
    private static final Duration LINGER = Duration.ofSeconds(2);

    private final HttpService service;
    private final HttpLimits limits;
    private final Deque<Object> early = new ArrayDeque<>();
    private State state = State.HEAD;
    private @Nullable Future<?> timer;
    private @Nullable HttpRequest head;
    private HttpService.@Nullable Route route;
    private @Nullable HttpCall call;
    private ByteArrayOutputStream body = new ByteArrayOutputStream(0);
    private int reserved;
    private long bodyStart;

    private enum State {
        /// Waits for a request's head.
        HEAD,
        /// Reads its body.
        BODY,
        /// A handler works on it, or its response is on the way out.
        WORK,
        /// Closing; nothing more is read.
        CLOSING
    }

    HttpConnection(HttpService service) {
        this.service = service;
        this.limits = service.settings().limits();
    }

    @Override
    public void channelActive(ChannelHandlerContext context) {
        if (!service.connections().add(context.channel())) {
            context.close();
            return;
        }
        awaitHead(context.channel());
    }

    private void awaitHead(Channel channel) {
        state = State.HEAD;
        setTimer(channel, limits.headTimeout(), channel::close);
    }

    private void setTimer(Channel channel, Duration delay, Runnable action) {
        cancelTimer();
        timer = channel.eventLoop().schedule(action, delay.toMillis(), TimeUnit.MILLISECONDS);
    }

    private void cancelTimer() {
        if (timer != null) {
            timer.cancel(false);
        }
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        if (state == State.WORK) {
            early.add(message);
            context.channel().config().setAutoRead(false);
            return;
        }
        try {
            take(context, message);
        } finally {
            ReferenceCountUtil.release(message);
        }
    }

    private void take(ChannelHandlerContext context, Object message) {
        try {
            if (message instanceof HttpRequest request && state == State.HEAD) {
                begin(context, request);
            }
            if (message instanceof HttpContent content && state == State.BODY) {
                append(context, content);
            }
        } catch (HttpProblem problem) {
            refuse(context, problem);
        }
    }

    private void begin(ChannelHandlerContext context, HttpRequest request) {
        cancelTimer();
        service.connections().setWaiting(context.channel(), false);
        head = request;
        if (request.decoderResult().isFailure()) {
            throw malformed(request.decoderResult().cause());
        }
        var path = HttpCall.pathOf(request.uri());
        var authorization = request.headers().get(HttpHeaderNames.AUTHORIZATION, "");
        route = service.find(request.method().name(), path, authorization);
        int most = service.settings().maxBodyBytes();
        if (HttpUtil.getContentLength(request, 0L) > most) {
            throw tooLarge(most);
        }
        if (HttpUtil.is100ContinueExpected(request)) {
            context.writeAndFlush(
                    new DefaultFullHttpResponse(
                            HttpVersion.HTTP_1_1,
                            HttpResponseStatus.CONTINUE,
                            Unpooled.EMPTY_BUFFER));
        }
        state = State.BODY;
        body = new ByteArrayOutputStream(0);
        bodyStart = System.nanoTime();
        setTimer(context.channel(), RATE_CHECK, () -> checkRate(context));
    }

    private static HttpProblem malformed(Throwable cause) {
        if (cause instanceof TooLongHttpLineException) {
            return HttpProblem.of(414, "uri_too_long", "the request line is too long");
        }
        if (cause instanceof TooLongHttpHeaderException) {
            return HttpProblem.of(431, "headers_too_large", "the request's headers are too long");
        }
        return HttpProblem.of(400, "bad_request", "this is no HTTP/1.1 request");
    }

    private static HttpProblem tooLarge(int most) {
        return HttpProblem.of(
                413, "body_too_large", "the request body is longer than " + most + " bytes");
    }

    private void checkRate(ChannelHandlerContext context) {
        if (state != State.BODY) {
            return;
        }
        var allowed = limits.timeFor(body.size());
        if (System.nanoTime() - bodyStart > allowed.toNanos()) {
            refuse(context, HttpProblem.of(408, "too_slow", "the request body comes too slowly"));
            return;
        }
        setTimer(context.channel(), RATE_CHECK, () -> checkRate(context));
    }

    private void append(ChannelHandlerContext context, HttpContent content) {
        if (content.decoderResult().isFailure()) {
            throw malformed(content.decoderResult().cause());
        }
        int bytes = content.content().readableBytes();
        if (body.size() + bytes > service.settings().maxBodyBytes()) {
            throw tooLarge(service.settings().maxBodyBytes());
        }
        if (bytes > 0) {
            if (!service.connections().reserve(bytes)) {
                throw HttpProblem.of(
                        503, "overloaded", "no memory for more request bodies; try again later");
            }
            reserved += bytes;
            copy(content, bytes);
        }
        if (content instanceof LastHttpContent) {
            dispatch(context);
        }
    }

    private void copy(HttpContent content, int bytes) {
        try {
            content.content().readBytes(body, bytes);
        } catch (IOException e) {
            throw new IllegalStateException("a byte array takes all bytes", e);
        }
    }

    private void dispatch(ChannelHandlerContext context) {
        cancelTimer();
        var request = Objects.requireNonNull(head, "head");
        var now = new HttpCall(this, context.channel(), request, body.toByteArray(), limits);
        body = new ByteArrayOutputStream(0);
        call = now;
        state = State.WORK;
        boolean ends = false;
        try {
            service.dispatch(now, Objects.requireNonNull(route, "route"));
            ends = true;
        } catch (HttpProblem problem) {
            // The body was read, so the connection is good for another request.
            service.count(problem.status());
            now.answerWith(problem);
            now.end(true);
            ends = true;
        } finally {
            if (!ends) { // no memory even for the answer: nothing else ends the call
                now.end(false);
            }
        }
    }

    /// Answers without a handler, and closes. What else the client sends is dropped for a while: to
    /// close at once would reset the connection, and a client that still sends its body would never
    /// see the answer.
    private void refuse(ChannelHandlerContext context, HttpProblem problem) {
        cancelTimer();
        releaseBody();
        boolean bodyless =
                state == State.HEAD
                        && head != null
                        && head.decoderResult().isSuccess()
                        && !HttpUtil.isTransferEncodingChunked(head)
                        && HttpUtil.getContentLength(head, 0L) == 0;
        var response = problemResponse(problem);
        service.count(problem.status());
        if (bodyless && head != null && HttpUtil.isKeepAlive(head)) {
            context.writeAndFlush(response);
            service.connections().setWaiting(context.channel(), true);
            awaitHead(context.channel());
            return;
        }
        state = State.CLOSING;
        response.headers().set(HttpHeaderNames.CONNECTION, "close");
        setTimer(context.channel(), limits.stall(), context.channel()::close);
        context.writeAndFlush(response).addListener(_ -> linger(context));
    }

    /// Says that nothing more comes, and leaves the closing to the client for a while.
    private void linger(ChannelHandlerContext context) {
        if (!context.channel().isActive()) {
            return;
        }
        setTimer(context.channel(), LINGER, context.channel()::close);
        service.connections().setWaiting(context.channel(), true);
        context.channel().config().setAutoRead(true);
        var tls = context.pipeline().get(SslHandler.class);
        if (tls != null) {
            tls.closeOutbound();
        } else if (context.channel() instanceof DuplexChannel channel) {
            channel.shutdownOutput();
        }
    }

    static FullHttpResponse problemResponse(HttpProblem problem) {
        var text = problem.toJson().getBytes(StandardCharsets.UTF_8);
        var response =
                new DefaultFullHttpResponse(
                        HttpVersion.HTTP_1_1,
                        HttpResponseStatus.valueOf(problem.status()),
                        Unpooled.wrappedBuffer(text));
        response.headers()
                .set(HttpHeaderNames.CONTENT_TYPE, "application/json")
                .set(HttpHeaderNames.CONTENT_LENGTH, text.length);
        problem.retryAfterSeconds()
                .ifPresent(value -> response.headers().set(HttpHeaderNames.RETRY_AFTER, value));
        return response;
    }

    private void releaseBody() {
        service.connections().release(reserved);
        reserved = 0;
    }

    /// The handler has returned and the response was handed to the channel. Any thread.
    ///
    /// @param whole false cuts the connection, so that half a response does not look whole
    /// @param unsent completes when the response is out
    /// @param unsentBytes what is on its way at most
    void ended(Channel channel, boolean whole, Future<?> unsent, long unsentBytes) {
        if (!whole) {
            channel.close();
        }
        try {
            channel.eventLoop().execute(() -> afterCall(channel, whole, unsent, unsentBytes));
        } catch (RejectedExecutionException e) {
            LOG.debug("the service closed while {} was being answered", channel.remoteAddress());
        }
    }

    private void afterCall(Channel channel, boolean whole, Future<?> unsent, long unsentBytes) {
        releaseBody();
        call = null;
        if (whole && channel.isActive()) {
            setTimer(channel, limits.timeFor(unsentBytes), channel::close);
            unsent.addListener(_ -> next(channel));
        }
    }

    private void next(Channel channel) {
        cancelTimer();
        var request = head;
        if (request == null || !HttpUtil.isKeepAlive(request) || !channel.isActive()) {
            state = State.CLOSING;
            channel.close();
            return;
        }
        boolean taken = false;
        try {
            service.connections().setWaiting(channel, true);
            awaitHead(channel);
            takeEarly(channel);
            taken = true;
        } finally {
            if (!taken) { // no memory: nothing else would end the connection
                channel.close();
            }
        }
        if (early.isEmpty()) {
            channel.config().setAutoRead(true);
        }
    }

    private void takeEarly(Channel channel) {
        var context = channel.pipeline().context(this);
        while (state != State.WORK && !early.isEmpty() && context != null) {
            var message = early.remove();
            try {
                take(context, message);
            } finally {
                ReferenceCountUtil.release(message);
            }
        }
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        if (call != null) {
            call.writabilityChanged();
        }
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        service.connections().remove(context.channel());
        cancelTimer();
        early.forEach(ReferenceCountUtil::release);
        early.clear();
        var hungUp = call;
        if (hungUp == null) {
            releaseBody();
        } else {
            hungUp.writabilityChanged();
            // Actions of handlers do not belong on the event loop.
            Thread.ofVirtual().name("kvferry-http-cancel").start(hungUp::cancel);
        }
        state = State.CLOSING;
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        LOG.debug(
                "connection of {} closed: {}", context.channel().remoteAddress(), cause.toString());
        context.close();
    }
}
