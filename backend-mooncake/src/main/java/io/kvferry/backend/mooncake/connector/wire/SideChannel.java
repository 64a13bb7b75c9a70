// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;
import org.zeromq.ZMQException;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import java.util.PriorityQueue;
import java.util.Queue;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/// The ZeroMQ sockets of one worker: a ROUTER that takes requests of decoders, and a DEALER per
/// exchange with a prefiller. One thread owns the context and every socket of it; other threads
/// hand it commands and wake it through a pipe.
///
/// Every message is one frame after the identity. A message with another number of frames is
/// dropped, alone. Exchanges end by an answer, by the loss of the connection (seen by an event
/// hook), or by their time limit.
///
/// Threading: any thread may call; callbacks run on the channel's thread and must not block.
public final class SideChannel implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(SideChannel.class);

    /// Largest message taken; a larger one costs its sender the connection.
    static final int MAX_MESSAGE_BYTES = 16 << 20;

    private static final int MAX_COMMANDS = 1 << 16;
    private static final int MAX_OPEN_EXCHANGES = 256;
    private static final int MAX_QUEUED_EXCHANGES = 1 << 14;
    private static final int MESSAGES_PER_TURN = 256;
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    /// Longest time between two looks at the sockets. Wake-ups are event driven; JeroMQ 0.6.0 loses
    /// one now and then when connections are made and dropped quickly, and what a poll with a time
    /// limit finds is never lost.
    private static final Duration LONGEST_POLL = Duration.ofMillis(20);

    private final String name;
    private final Thread thread;
    private final Pipe wake;
    private final AtomicBoolean woken = new AtomicBoolean();
    private final Queue<Runnable> commands = new ArrayBlockingQueue<>(MAX_COMMANDS);
    private final AtomicLong dropped = new AtomicLong();
    private final CompletableFuture<Void> ended = new CompletableFuture<>();
    private volatile boolean closing;

    // Owned by the channel's thread.
    private final ZContext context;
    private final ZMQ.Poller poller;
    private final List<ZmqExchange> open = new ArrayList<>();
    private final Deque<ZmqExchange> queued = new ArrayDeque<>();
    private final PriorityQueue<Timer> timers =
            new PriorityQueue<>(Comparator.comparingLong(Timer::nanoTime));
    private ZMQ.@Nullable Socket router;
    private int routerIndex = -1;
    private Requests requests = (_, _) -> {};

    private record Timer(long nanoTime, Runnable action) {}

    /// Who asked, and where the answers go.
    public interface Asker {
        /// Queues an answer; it is dropped when the asker has gone or does not read.
        void answer(byte[] message);
    }

    /// Takes requests.
    @FunctionalInterface
    public interface Requests {
        void onRequest(Asker asker, byte[] message);
    }

    /// Takes what comes of an exchange.
    public interface Answers {
        /// An answer came.
        ///
        /// @return whether it was the last one
        boolean onAnswer(byte[] message);

        /// There will be no more answers. Not called after the last answer.
        void onLost(Failure failure);
    }

    public SideChannel(String name) {
        this.name = name;
        context = new ZContext(1);
        context.setLinger(0);
        try {
            wake = Pipe.open();
            wake.source().configureBlocking(false);
            wake.sink().configureBlocking(false);
        } catch (IOException e) {
            context.close();
            throw new UncheckedIOException("no pipe for " + name, e);
        }
        poller = context.createPoller(8);
        poller.register(wake.source(), ZMQ.Poller.POLLIN);
        thread = Thread.ofPlatform().name(name).daemon(true).unstarted(this::run);
        thread.start();
    }

    /// Binds the ROUTER on a free port of `host`; at most once.
    ///
    /// @return its address, `tcp://host:port`
    public String listen(String host, Requests handler) {
        var bound = new CompletableFuture<String>();
        post(() -> {
            try {
                bound.complete(bind(host, handler));
            } catch (ZMQException e) {
                bound.completeExceptionally(
                        new KvFerryException(
                                ErrorCode.UNAVAILABLE,
                                name + " cannot listen on tcp://" + host + ": " + e.getMessage(),
                                e));
            }
        });
        try {
            return bound.orTimeout(CLOSE_LIMIT.toSeconds(), TimeUnit.SECONDS).join();
        } catch (CompletionException e) {
            throw e.getCause() instanceof KvFerryException coded
                    ? coded
                    : new KvFerryException(
                            ErrorCode.INTERNAL, name + " did not bind: " + e.getCause(), e);
        }
    }

    private void answer(byte[] identity, byte[] message) {
        if (!post(() -> sendAnswer(identity, message))) {
            dropped.incrementAndGet();
        }
    }

    /// Sends a request over a connection of its own and hands its answers on.
    ///
    /// @param connectLimit until the connection stands
    /// @param answerLimit from the connection, and then from each answer, to the next
    public void exchange(
            String address,
            byte[] request,
            Duration connectLimit,
            Duration answerLimit,
            Answers answers) {
        if (request.length > MAX_MESSAGE_BYTES) {
            answers.onLost(
                    new Failure(
                            ErrorCode.INVALID_REQUEST,
                            name
                                    + ": a request of "
                                    + request.length
                                    + " bytes is over "
                                    + MAX_MESSAGE_BYTES));
            return;
        }
        var exchange =
                new ZmqExchange(
                        address,
                        request,
                        Deadline.in(connectLimit),
                        answerLimit,
                        answers,
                        this::wakeUp);
        if (!post(() -> begin(exchange))) {
            answers.onLost(
                    new Failure(
                            closing ? ErrorCode.CLOSED : ErrorCode.BACKPRESSURE,
                            name + ": request to " + address + " not sent"));
        }
    }

    /// Runs something on the channel's thread, not earlier than after `delay`. Dropped when the
    /// channel closes first.
    public void after(Duration delay, Runnable action) {
        long when = System.nanoTime() + delay.toNanos();
        if (!post(() -> timers.add(new Timer(when, action)))) {
            dropped.incrementAndGet();
        }
    }

    /// Answers and timers that were thrown away because a queue was full or a peer did not read.
    public long dropped() {
        return dropped.get();
    }

    /// Ends all exchanges with `CLOSED`, closes all sockets.
    @Override
    public void close() {
        closing = true;
        wakeUp();
        if (Thread.currentThread() == thread) {
            return;
        }
        try {
            ended.orTimeout(CLOSE_LIMIT.toSeconds(), TimeUnit.SECONDS).join();
        } catch (CompletionException e) {
            LOG.warn("{} did not end within {} s", name, CLOSE_LIMIT.toSeconds());
        }
    }

    private boolean post(Runnable command) {
        if (closing || !commands.offer(command)) {
            return false;
        }
        wakeUp();
        return true;
    }

    private void wakeUp() {
        if (woken.compareAndSet(false, true)) {
            try {
                wake.sink().write(ByteBuffer.allocate(1));
            } catch (IOException e) {
                LOG.debug("{} is closed already: {}", name, e.toString());
            }
        }
    }

    private void run() {
        try {
            while (!closing) {
                for (var command = commands.poll(); command != null; command = commands.poll()) {
                    command.run();
                }
                runTimers();
                poller.poll(pollMillis());
                drainWake();
                if (router != null && poller.pollin(routerIndex)) {
                    receiveRequests(router);
                }
                serveExchanges();
                while (open.size() < MAX_OPEN_EXCHANGES && !queued.isEmpty()) {
                    openNow(queued.poll());
                }
            }
        } catch (ZMQException | IOException e) {
            LOG.error("{} ends: its sockets failed", name, e);
        } finally {
            closing = true;
            shutDown();
        }
    }

    private void shutDown() {
        for (var command = commands.poll(); command != null; command = commands.poll()) {
            command.run(); // an exchange posted at the last moment must still hear that it is lost
        }
        var failure = new Failure(ErrorCode.CLOSED, name + " was closed");
        for (var exchange : new ArrayList<>(open)) {
            finish(exchange, failure);
        }
        queued.forEach(exchange -> guard(() -> exchange.answers().onLost(failure)));
        queued.clear();
        poller.close();
        context.close();
        try {
            wake.sink().close();
            wake.source().close();
        } catch (IOException e) {
            LOG.debug("{}: closing the pipe: {}", name, e.toString());
        }
        ended.complete(null);
    }

    private void drainWake() throws IOException {
        woken.set(false);
        var sink = ByteBuffer.allocate(16);
        while (wake.source().read(sink) > 0) {
            sink.clear();
        }
    }

    private void runTimers() {
        long now = System.nanoTime();
        for (var timer = timers.peek();
                timer != null && timer.nanoTime() - now <= 0;
                timer = timers.peek()) {
            timers.poll();
            guard(timer.action());
        }
    }

    private long pollMillis() {
        long nanos = LONGEST_POLL.toNanos();
        if (!timers.isEmpty()) {
            nanos = Math.min(nanos, timers.element().nanoTime() - System.nanoTime());
        }
        for (var exchange : open) {
            nanos = Math.min(nanos, exchange.deadline().remainingNanos());
        }
        return commands.isEmpty() ? Math.max(0, TimeUnit.NANOSECONDS.toMillis(nanos) + 1) : 0;
    }

    private String bind(String host, Requests handler) {
        var socket = context.createSocket(SocketType.ROUTER);
        socket.setLinger(0);
        socket.setMaxMsgSize(MAX_MESSAGE_BYTES);
        socket.setRouterMandatory(true); // an answer to nobody is an error, not silence
        socket.setSendTimeOut(0);
        int port = socket.bindToRandomPort("tcp://" + host);
        requests = handler;
        router = socket;
        routerIndex = poller.register(socket, ZMQ.Poller.POLLIN);
        return "tcp://" + host + ":" + port;
    }

    private void receiveRequests(ZMQ.Socket socket) {
        for (int n = 0; n < MESSAGES_PER_TURN; n++) {
            byte[] identity = socket.recv(ZMQ.DONTWAIT);
            if (identity == null) {
                return;
            }
            singleFrame(socket)
                    .ifPresent(message ->
                            guard(() ->
                                    requests.onRequest(
                                            answer -> answer(identity, answer), message)));
        }
    }

    /// The one frame that is left of the current message; empty when it has another number of
    /// frames.
    private static Optional<byte[]> singleFrame(ZMQ.Socket socket) {
        byte @Nullable [] first = socket.hasReceiveMore() ? socket.recv(ZMQ.DONTWAIT) : null;
        int more = 0;
        while (socket.hasReceiveMore()) {
            socket.recv(ZMQ.DONTWAIT);
            more++;
        }
        if (first == null || more > 0) {
            LOG.debug("dropped a message of {} frames", first == null ? 0 : more + 1);
            return Optional.empty();
        }
        return Optional.of(first);
    }

    private void sendAnswer(byte[] identity, byte[] message) {
        var socket = router;
        if (socket == null) {
            return;
        }
        try {
            if (!socket.send(identity, ZMQ.SNDMORE | ZMQ.DONTWAIT)
                    || !socket.send(message, ZMQ.DONTWAIT)) {
                dropped.incrementAndGet();
            }
        } catch (ZMQException e) {
            dropped.incrementAndGet();
            LOG.debug("{}: nobody takes the answer: {}", name, e.getMessage());
        }
    }

    private void begin(ZmqExchange exchange) {
        if (!closing && open.size() < MAX_OPEN_EXCHANGES) {
            openNow(exchange);
        } else if (!closing && queued.size() < MAX_QUEUED_EXCHANGES) {
            queued.add(exchange);
        } else {
            var code = closing ? ErrorCode.CLOSED : ErrorCode.BACKPRESSURE;
            var text = name + ": request to " + exchange.address() + " not sent";
            guard(() -> exchange.answers().onLost(new Failure(code, text)));
        }
    }

    private void openNow(ZmqExchange exchange) {
        try {
            exchange.open(context, poller);
            open.add(exchange);
        } catch (ZMQException | IllegalArgumentException e) {
            exchange.close(poller);
            var text = "cannot connect to " + exchange.address() + ": " + e.getMessage();
            guard(() -> exchange.answers().onLost(new Failure(ErrorCode.PEER_LOST, text)));
        }
    }

    private void serveExchanges() {
        for (int i = open.size() - 1; i >= 0; i--) {
            var exchange = open.get(i);
            boolean ended =
                    exchange.ended(); // before the answers: a peer that answers and leaves has
            // answered
            boolean over = false;
            for (var message = exchange.next();
                    message.isPresent() && !over;
                    message = exchange.next()) {
                over = guardedAnswer(exchange, message.get());
            }
            if (over) {
                forget(exchange);
            } else {
                exchange.fate(ended).ifPresent(failure -> finish(exchange, failure));
            }
        }
    }

    private boolean guardedAnswer(ZmqExchange exchange, byte[] message) {
        try {
            return exchange.answers().onAnswer(message);
        } catch (RuntimeException e) {
            LOG.error("{}: handler of answers failed", name, e);
            guard(() -> exchange.answers().onLost(Failure.of(e)));
            return true;
        }
    }

    private void finish(ZmqExchange exchange, Failure failure) {
        forget(exchange);
        guard(() -> exchange.answers().onLost(failure));
    }

    private void forget(ZmqExchange exchange) {
        open.remove(exchange);
        exchange.close(poller);
    }

    /// The border to callbacks: a defect in one must not end the channel for everybody.
    private void guard(Runnable callback) {
        try {
            callback.run();
        } catch (RuntimeException e) {
            LOG.error("{}: callback failed", name, e);
        }
    }
}
