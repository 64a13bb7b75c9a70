// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.jspecify.annotations.Nullable;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;
import org.zeromq.ZMonitor;

import java.time.Duration;
import java.util.Optional;

/// One request and its answers on a DEALER of their own, with a hook that sees the connection stand
/// and fall.
///
/// Threading: the [SideChannel]'s thread, after construction.
final class ZmqExchange {
    /// JeroMQ 0.6.0 lets about one new connection in 500 stall in its handshake
    /// (SideChannelTest#losesNoExchange shows it without this). Cut off after this time, the socket
    /// connects again and the request, still unsent, goes out.
    private static final int HANDSHAKE_MILLIS = 300;

    /// A connection that ends this long after it stood, without a word, was cut off by the line
    /// above.
    private static final long CUT_OFF_FROM_NANOS =
            Duration.ofMillis(HANDSHAKE_MILLIS - 20).toNanos();

    private static final long CUT_OFF_UNTIL_NANOS =
            Duration.ofMillis(5 * HANDSHAKE_MILLIS).toNanos();

    private static final int MAX_STALLS = 4;
    private static final int RECONNECT_MILLIS = 20;

    private final String address;
    private final byte[] request;
    private final Duration answerLimit;
    private final SideChannel.Answers answers;
    private final Runnable wakeUp;
    private Deadline deadline;
    private ZMQ.@Nullable Socket socket;
    private int socketIndex = -1;
    private boolean limitStarted;

    // Written by ZeroMQ's I/O thread, in this order.
    private volatile boolean greeted;
    private volatile boolean ended;
    private volatile int stalls;

    // Of ZeroMQ's I/O thread.
    private boolean connected;
    private long connectedAt;

    private volatile boolean answered;

    ZmqExchange(
            String address,
            byte[] request,
            Deadline connectBy,
            Duration answerLimit,
            SideChannel.Answers answers,
            Runnable wakeUp) {
        this.address = address;
        this.request = request;
        this.deadline = connectBy;
        this.answerLimit = answerLimit;
        this.answers = answers;
        this.wakeUp = wakeUp;
    }

    String address() {
        return address;
    }

    SideChannel.Answers answers() {
        return answers;
    }

    Deadline deadline() {
        return deadline;
    }

    void open(ZContext context, ZMQ.Poller poller) {
        var dealer = context.createSocket(SocketType.DEALER);
        socket = dealer;
        dealer.setLinger(0);
        dealer.setMaxMsgSize(SideChannel.MAX_MESSAGE_BYTES);
        dealer.setHandshakeIvl(HANDSHAKE_MILLIS);
        dealer.setReconnectIVL(RECONNECT_MILLIS);
        // A hook and not a monitor socket: writing to that one blocks the I/O thread of all sockets
        // when its reader
        // is gone (JeroMQ 0.6.0, observed).
        dealer.setEventHook(
                event -> connectionChanged(event.getEvent()),
                ZMQ.EVENT_CONNECTED
                        | ZMQ.EVENT_HANDSHAKE_PROTOCOL
                        | ZMQ.EVENT_CLOSED
                        | ZMQ.EVENT_CONNECT_RETRIED
                        | ZMQ.EVENT_DISCONNECTED);
        dealer.connect(address);
        dealer.send(request, ZMQ.DONTWAIT);
        socketIndex = poller.register(dealer, ZMQ.Poller.POLLIN);
    }

    private void connectionChanged(ZMonitor.Event event) {
        switch (event) {
            case CONNECTED -> {
                connected = true;
                connectedAt = System.nanoTime();
            }
            case HANDSHAKE_PROTOCOL -> greeted = true;
            case DISCONNECTED -> {
                ended |= !cutOff();
                connected = false;
            }
            case CLOSED -> ended |= !connected; // refused
            case CONNECT_RETRIED ->
                    ended |= !connected && stalls == 0; // after a cut-off it is as planned
            default -> throw new IllegalArgumentException("not subscribed: " + event);
        }
        wakeUp.run();
    }

    private boolean cutOff() {
        long stood = System.nanoTime() - connectedAt;
        boolean stalled =
                connected
                        && !answered
                        && stood >= CUT_OFF_FROM_NANOS
                        && stood <= CUT_OFF_UNTIL_NANOS;
        if (stalled) {
            stalls++;
        }
        return stalled && stalls <= MAX_STALLS;
    }

    void close(ZMQ.Poller poller) {
        var dealer = socket;
        if (dealer != null) {
            if (socketIndex >= 0) {
                poller.unregister(dealer);
            }
            dealer.close();
        }
        socket = null;
    }

    /// Whether the connection is over. What it delivered before can still be read, so ask this
    /// first.
    boolean ended() {
        return ended;
    }

    /// The next answer that has come; messages of several frames are dropped.
    Optional<byte[]> next() {
        var dealer = socket;
        if (dealer == null) {
            return Optional.empty();
        }
        for (var frame = dealer.recv(ZMQ.DONTWAIT);
                frame != null;
                frame = dealer.recv(ZMQ.DONTWAIT)) {
            boolean single = !dealer.hasReceiveMore();
            while (dealer.hasReceiveMore()) {
                dealer.recv(ZMQ.DONTWAIT);
            }
            if (single) {
                answered = true;
                deadline = Deadline.in(answerLimit);
                return Optional.of(frame);
            }
        }
        return Optional.empty();
    }

    /// Why no more answers will come, if so.
    ///
    /// @param over what [#ended] said before the answers were read
    Optional<Failure> fate(boolean over) {
        if (over && stalls > MAX_STALLS) {
            return Optional.of(
                    new Failure(
                            ErrorCode.PROTOCOL,
                            "prefiller at " + address + " does not complete a ZeroMQ handshake"));
        }
        if (over) {
            var what = greeted ? " closed the connection" : " does not take connections";
            return Optional.of(new Failure(ErrorCode.PEER_LOST, "prefiller at " + address + what));
        }
        if (greeted && !limitStarted) {
            limitStarted = true;
            deadline = Deadline.in(answerLimit);
        }
        if (!deadline.passed()) {
            return Optional.empty();
        }
        var what =
                greeted
                        ? ": no answer within " + answerLimit.toMillis() + " ms"
                        : ": no answer within the time to connect";
        return Optional.of(new Failure(ErrorCode.TIMEOUT, "prefiller at " + address + what));
    }
}
