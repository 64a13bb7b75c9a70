// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.net.Cancellation;
import io.kvferry.toolkit.net.HostNames;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.channels.ServerSocketChannel;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/// The ZeroMQ end of one worker: a ROUTER that takes requests of peers, and DEALERs that ask peers.
/// It speaks ZMTP 3 with vLLM's libzmq and any other implementation.
///
/// The protocol is implemented here because JeroMQ 0.6.0, the only library without native code,
/// crashes or spins on a few malformed bytes from any client, lets unauthenticated clients allocate
/// 16 MiB of direct memory with nine bytes, stalls in one of 500 handshakes, and does not allow its
/// decoder to be replaced (`setDecoder` is for raw sockets).
///
/// With vLLM each exchange has a connection for itself. Exchanges of two kvferry ends share one, if
/// both want that: [#exchange] offers it, [Requests#shares] accepts it.
///
/// With [CurveKeys] all connections are encrypted and mutually authenticated; without, anybody who
/// can connect may ask, as with vLLM.
///
/// Threading: any thread may call; callbacks run on threads of the channel and must not block.
public final class SideChannel implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(SideChannel.class);

    /// Largest accepted message; the connection of a peer that sends a larger one is closed.
    static final int MAX_MESSAGE_BYTES = 16 << 20;

    private static final int BACKLOG = 512;
    private static final int TRIES = 500;

    /// How long a connection is kept for the next exchange: shorter than firewalls forget one.
    private static final Duration REST = Duration.ofSeconds(30);

    private final String name;
    private final Optional<CurveKeys> keys;
    private final ScheduledThreadPoolExecutor clock;
    private final Exchanges exchanges;

    /// Of [#connect].
    private final Cancellation connecting = new Cancellation();

    private volatile Optional<RouterPort> router = Optional.empty();
    private volatile boolean closing;

    /// Who asked, and where the answers go: one object for each connection, or for each request
    /// where requests share a connection.
    public interface Asker {
        /// Queues an answer.
        ///
        /// @return false when the asker has gone or does not read
        boolean answer(byte[] message);

        /// As [#answer], but where the asker's connection carries nothing else the answer leaves on
        /// the calling thread. From within [Requests#onRequest] only.
        default boolean answerHere(byte[] message) {
            return answer(message);
        }

        /// Whether the request is handled on a thread dedicated to its connection, so that
        /// [Requests#onRequest] may block until it has the answer.
        default boolean hasThread() {
            return false;
        }

        /// Queues the last answer to a request. On a connection that requests share there is none
        /// after it, and [Requests#onGone] is not called.
        ///
        /// @return as [#answer]
        default boolean last(byte[] message) {
            return answer(message);
        }

        /// The address that the asker comes from.
        default String host() {
            return "";
        }

        /// What the asker calls itself (ZMQ_IDENTITY), which nothing proves; empty for nothing.
        default String identity() {
            return "";
        }
    }

    /// Takes requests.
    @FunctionalInterface
    public interface Requests {
        /// A message came. Messages of one asker come one after the other.
        void onRequest(Asker asker, byte[] message);

        /// The asker's connection has ended, or it has cancelled the request: answers are no longer
        /// needed.
        default void onGone(Asker asker) {}

        /// Whether a decoder's requests may share a connection. Each must end with [Asker#last]
        /// then.
        default boolean shares() {
            return false;
        }

        /// Whether requests are answered within [#onRequest] where [Asker#hasThread] says so:
        /// connections that ask often have platform threads then, as many as there are for them.
        default boolean answersHere() {
            return false;
        }
    }

    /// Callbacks of an exchange; never called concurrently, except [#onLeaving].
    public interface Answers {
        /// An answer came.
        Reading onAnswer(byte[] message);

        /// There will be no more answers. Not called after the last answer.
        void onLost(Failure failure);

        /// The request is about to be sent; from now on the peer may see it. Called each time it is
        /// handed to a connection, before any answer, on the sending thread. Must not block.
        default void onLeaving() {}

        /// Called instead of [#onLost] when the request was not and will not be sent.
        default void onNotSent(Failure failure) {
            onLost(failure);
        }
    }

    /// How an exchange goes on after an answer.
    public enum Reading {
        MORE,
        /// It was the last one.
        DONE,
        /// Whatever else comes over this connection is not wanted.
        GIVE_UP
    }

    /// How long the peer may take to answer. Each kind has its own limits and queues, so that
    /// requests with an immediate answer never wait behind slow ones.
    public enum Turn {
        /// Answered when some event has happened at the peer.
        LONG,
        /// Answered at once, or not at all.
        SHORT
    }

    /// Which connection an exchange is carried by.
    public enum Carriage {
        /// One that carries nothing else meanwhile.
        ALONE,
        /// One for all exchanges of this kind with the same prefiller, if that takes it; else as
        /// [#ALONE].
        SHARED
    }

    /// An exchange that has begun.
    public interface Call {
        /// The answers are no longer wanted.
        ///
        /// On a shared connection, [Answers#onLost] is called. The request is sent even so, if
        /// necessary, and then cancelled, so that the prefiller can release what it holds for it.
        /// On a connection of its own, the exchange continues, as with vLLM. Does nothing if the
        /// exchange has ended.
        void cancel();

        /// Prevents an unsent request from being sent; [Answers#onNotSent] is then called. Does
        /// nothing if it has been sent or the exchange has ended.
        void withdraw();
    }

    /// Something that is to happen later.
    @FunctionalInterface
    public interface Timer {
        /// It need not happen any more, and is forgotten.
        void cancel();
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
        this.clock =
                new ScheduledThreadPoolExecutor(
                        1, Thread.ofPlatform().name(name).daemon(true).factory());
        clock.setRemoveOnCancelPolicy(true);
        clock.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        this.exchanges = new Exchanges(name, keys, clock, rest);
    }

    /// Binds the ROUTER on a free port of `host`; at most once.
    ///
    /// @return its address, `tcp://host:port`
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] when that cannot be, [ErrorCode#TIMEOUT]
    ///   when no name server answers, [ErrorCode#NO_MEMORY] when no thread can be had
    public String listen(String host, Requests handler) {
        return listen(host, host, 0, 0, handler);
    }

    /// As [#listen(String, Requests)].
    ///
    /// @param host what peers are told
    /// @param bindHost what the socket listens on
    /// @param minPort with maxPort: where the port is drawn from; 0 leaves it to the system
    public String listen(String host, String bindHost, int minPort, int maxPort, Requests handler) {
        var address = HostNames.SYSTEM.socketAddress(bindHost, 0).getAddress();
        try {
            if (address == null) {
                throw new UnknownHostException(bindHost + " is not a known address");
            }
            var listener = bind(address, minPort, maxPort);
            var port = new RouterPort(name, listener, host, keys, handler, clock);
            router = Optional.of(port);
            if (closing) {
                port.close();
            }
            return port.address();
        } catch (KvFerryException e) { // not the port's fault
            throw e;
        } catch (IOException | RuntimeException e) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    "%s cannot listen on tcp://%s%s: %s; choose a free port, and an address of this machine"
                            .formatted(name, bindHost, ports(minPort, maxPort), e.getMessage()),
                    e);
        }
    }

    private static String ports(int min, int max) {
        return max == 0 ? "" : min == max ? ":" + max : ":" + min + " to " + max;
    }

    private static ServerSocketChannel bind(InetAddress address, int minPort, int maxPort)
            throws IOException {
        int tries = minPort == maxPort ? 1 : TRIES; // one port, or any
        IOException last = new IOException("no port was tried");
        for (int i = 0; i < tries; i++) {
            int port = maxPort == 0 ? 0 : ThreadLocalRandom.current().nextInt(minPort, maxPort + 1);
            var listener = ServerSocketChannel.open();
            try {
                return listener.bind(new InetSocketAddress(address, port), BACKLOG);
            } catch (IOException e) {
                listener.close();
                last = e;
            }
        }
        throw last;
    }

    /// Sends a request over a connection used by nothing else meanwhile, and passes its answers on.
    ///
    /// @param connectLimit from the exchange's turn until it is connected. The number of open
    ///   requests per prefiller is limited; others wait for their turn, for at most `answerLimit`
    /// @param answerLimit from connecting to the first answer, and between two answers
    public void exchange(
            String address,
            byte[] request,
            Duration connectLimit,
            Duration answerLimit,
            Answers answers) {
        exchange(address, request, connectLimit, answerLimit, Turn.LONG, answers);
    }

    /// As [#exchange(String, byte[], Duration, Duration, Answers)], which is [Turn#LONG] and
    /// [Carriage#ALONE].
    public void exchange(
            String address,
            byte[] request,
            Duration connectLimit,
            Duration answerLimit,
            Turn turn,
            Answers answers) {
        var _ =
                exchange(
                        address, request, connectLimit, answerLimit, turn, Carriage.ALONE, answers);
    }

    /// As [#exchange(String, byte[], Duration, Duration, Turn, Answers)].
    public Call exchange(
            String address,
            byte[] request,
            Duration connectLimit,
            Duration answerLimit,
            Turn turn,
            Carriage carriage,
            Answers answers) {
        var exchange =
                new Exchange(
                        address,
                        request,
                        connectLimit,
                        answerLimit,
                        turn,
                        carriage,
                        answers,
                        clock);
        if (request.length > MAX_MESSAGE_BYTES) {
            exchange.lose(
                    new Failure(
                            ErrorCode.INVALID_REQUEST,
                            name
                                    + ": a request of "
                                    + request.length
                                    + " bytes is over "
                                    + MAX_MESSAGE_BYTES));
        } else {
            exchanges.begin(exchange);
        }
        return exchange;
    }

    /// Connects a DEALER for messages in any order, as libzmq's users have it; the caller closes
    /// it.
    ///
    /// @param address `tcp://host:port`
    /// @param identity what the ROUTER is to call this end
    /// @throws KvFerryException [ErrorCode#PEER_LOST], [ErrorCode#TIMEOUT], [ErrorCode#PROTOCOL],
    ///   [ErrorCode#PEER_REFUSED], [ErrorCode#CLOSED] when the channel is closed first
    public DealerSocket connect(String address, String identity, Deadline deadline) {
        var terms = new ZmtpHandshake.Terms(ZmtpHandshake.Role.DEALER, keys, false, identity);
        return DealerSocket.connect(name, address, terms, deadline, clock, connecting);
    }

    /// Runs `action` on the channel's timer thread after at least `delay`. Dropped when the channel
    /// closes first.
    public Timer after(Duration delay, Runnable action) {
        try {
            var scheduled =
                    clock.schedule(
                            LastingLoop.repeated(() -> guard(name, action)),
                            delay.toNanos(),
                            TimeUnit.NANOSECONDS);
            return () -> scheduled.cancel(false);
        } catch (RejectedExecutionException e) {
            LOG.debug("{} is closed: {}", name, e.toString());
            return () -> {};
        }
    }

    /// Runs something on the channel's clock again and again, first after `period`, until the
    /// channel closes, whatever it throws.
    public void every(Duration period, Runnable action) {
        try {
            var _ =
                    clock.scheduleWithFixedDelay(
                            LastingLoop.repeated(() -> guard(name, action)),
                            period.toNanos(),
                            period.toNanos(),
                            TimeUnit.NANOSECONDS);
        } catch (RejectedExecutionException e) {
            LOG.debug("{} is closed: {}", name, e.toString());
        }
    }

    /// @param listener gets the address of a prefiller when the last connection to it ends while
    ///   idle. Whether the prefiller is still alive shows only with the next exchange. Called on
    ///   threads of the channel
    public void onIdleEnd(Consumer<String> listener) {
        exchanges.onIdleEnd(listener);
    }

    /// Why decoders cannot connect, if that is so.
    public Optional<String> trouble() {
        return router.flatMap(RouterPort::trouble);
    }

    /// Timers that have not run.
    int timers() {
        return clock.getQueue().size();
    }

    /// Ends all exchanges and what is being connected with `CLOSED`, closes all sockets.
    @Override
    public void close() {
        closing = true;
        connecting.cancel(ErrorCode.CLOSED);
        exchanges.close();
        router.ifPresent(RouterPort::close);
        clock.shutdownNow();
    }

    /// Runs a callback and catches everything: a bug in one must not end the channel.
    public static void guard(String name, Runnable callback) {
        try {
            callback.run();
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "{}: callback failed", name, e);
        }
    }
}
