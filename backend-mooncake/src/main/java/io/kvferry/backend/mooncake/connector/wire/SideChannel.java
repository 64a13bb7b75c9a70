// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;
import org.zeromq.ZMQException;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.time.Duration;
import java.util.Comparator;
import java.util.Optional;
import java.util.PriorityQueue;
import java.util.Queue;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/// The ZeroMQ sockets of one worker: a ROUTER that takes requests of decoders, and DEALERs, one per
/// exchange with a prefiller that is under way, and some that rest between two exchanges. One
/// thread owns the context and every socket of it; other threads hand it commands and wake it
/// through a pipe.
///
/// With [CurveKeys] all connections are encrypted and mutually authenticated; without, anybody who
/// can connect may ask, as with vLLM.
///
/// Threading: any thread may call; callbacks run on the channel's thread and must not block.
public final class SideChannel implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(SideChannel.class);

    /// Largest message taken; a larger one costs its sender the connection.
    static final int MAX_MESSAGE_BYTES = 16 << 20;

    private static final int MAX_COMMANDS = 1 << 16;
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    /// Longest time between two looks at the sockets. Wake-ups are event driven; JeroMQ 0.6.0 loses
    /// one now and then when connections are made and dropped quickly, and what a poll with a time
    /// limit finds is never lost.
    private static final Duration LONGEST_POLL = Duration.ofMillis(20);

    /// How long a connection is kept for the next exchange: shorter than firewalls forget one.
    private static final Duration REST = Duration.ofSeconds(30);

    private final String name;
    private final Optional<CurveKeys> keys;
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
    private final Exchanges exchanges;
    private final PriorityQueue<Timer> timers =
            new PriorityQueue<>(Comparator.comparingLong(Timer::nanoTime));
    private Optional<ServingSocket> serving = Optional.empty();
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
        Reading onAnswer(byte[] message);

        /// There will be no more answers. Not called after the last answer.
        void onLost(Failure failure);
    }

    /// How an exchange goes on after an answer.
    public enum Reading {
        MORE,
        /// It was the last one.
        DONE,
        /// Whatever else comes over this connection is not wanted.
        GIVE_UP
    }

    /// A channel in the clear, as vLLM's.
    public SideChannel(String name) {
        this(name, Optional.empty());
    }

    public SideChannel(String name, Optional<CurveKeys> keys) {
        this(name, keys, REST);
    }

    /// @param rest how long a connection to a prefiller may rest between two exchanges
    SideChannel(String name, Optional<CurveKeys> keys, Duration rest) {
        this.name = name;
        this.keys = keys;
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
        exchanges = new Exchanges(name, context, poller, keys, rest, this::wakeUp);
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

    /// Sends a request over a connection that nothing else uses meanwhile, and hands its answers
    /// on.
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
                new ZmqExchange(address, request, Deadline.in(connectLimit), answerLimit, answers);
        if (!post(() -> exchanges.begin(exchange))) {
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
                serving.ifPresent(socket -> socket.receive(this::take));
                exchanges.serve();
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
        exchanges.closeAll(new Failure(ErrorCode.CLOSED, name + " was closed"));
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
            guard(name, timer.action());
        }
    }

    private long pollMillis() {
        long nanos = LONGEST_POLL.toNanos();
        if (!timers.isEmpty()) {
            nanos = Math.min(nanos, timers.element().nanoTime() - System.nanoTime());
        }
        nanos = exchanges.untilDeadline(nanos);
        return commands.isEmpty() ? Math.max(0, TimeUnit.NANOSECONDS.toMillis(nanos) + 1) : 0;
    }

    private String bind(String host, Requests handler) {
        var socket = new ServingSocket(context, poller, host, keys);
        requests = handler;
        serving = Optional.of(socket);
        return socket.address();
    }

    private void take(byte[] identity, byte[] message) {
        guard(name, () -> requests.onRequest(answer -> answer(identity, answer), message));
    }

    private void sendAnswer(byte[] identity, byte[] message) {
        if (serving.isPresent() && !serving.get().send(identity, message)) {
            dropped.incrementAndGet();
        }
    }

    /// The border to callbacks: a defect in one must not end the channel for everybody.
    static void guard(String name, Runnable callback) {
        try {
            callback.run();
        } catch (RuntimeException e) {
            LOG.error("{}: callback failed", name, e);
        }
    }
}
