// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import org.jspecify.annotations.Nullable;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;
import org.zeromq.ZMonitor;

import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// A DEALER of one prefiller's ROUTER, with a hook that sees the connection stand and fall. It
/// carries one exchange at a time, one after the other.
///
/// Threading: the [SideChannel]'s thread, after construction.
final class DealerConnection {
    /// JeroMQ 0.6.0 lets about one new connection in 500 stall in its handshake, more of them on a
    /// busy machine (SideChannelTest#losesNoExchange shows it without this). Cut off after this
    /// time, the socket connects again and the request, still unsent, goes out.
    private static final int HANDSHAKE_MILLIS = 300;

    /// CURVE's takes a few milliseconds of computing on each side.
    private static final int CURVE_HANDSHAKE_MILLIS = 1500;

    private static final int RECONNECT_MILLIS = 20;

    private final String address;
    private final int handshakeMillis;
    private final Runnable wakeUp;
    private ZMQ.@Nullable Socket socket;
    private int socketIndex = -1;
    private long restingSince;

    // Written by ZeroMQ's I/O thread, in this order.
    private volatile boolean greeted;
    private volatile boolean ended;
    private volatile int stalls;

    // Of ZeroMQ's I/O thread.
    private boolean connected;
    private long connectedAt;

    DealerConnection(String address, boolean curve, Runnable wakeUp) {
        this.address = address;
        this.handshakeMillis = curve ? CURVE_HANDSHAKE_MILLIS : HANDSHAKE_MILLIS;
        this.wakeUp = wakeUp;
    }

    String address() {
        return address;
    }

    /// Begins to connect; what is sent meanwhile goes out when the connection stands.
    void open(ZContext context, ZMQ.Poller poller, Optional<CurveKeys> keys) {
        var dealer = context.createSocket(SocketType.DEALER);
        socket = dealer;
        dealer.setLinger(0);
        dealer.setMaxMsgSize(SideChannel.MAX_MESSAGE_BYTES);
        dealer.setHandshakeIvl(handshakeMillis);
        keys.ifPresent(known -> known.apply(dealer));
        dealer.setReconnectIVL(RECONNECT_MILLIS);
        // A hook and not a monitor socket: writing to that one blocks the I/O thread of all sockets
        // when its reader is gone (JeroMQ 0.6.0, observed).
        dealer.setEventHook(
                event -> connectionChanged(event.getEvent()),
                ZMQ.EVENT_CONNECTED
                        | ZMQ.EVENT_HANDSHAKE_PROTOCOL
                        | ZMQ.EVENT_CLOSED
                        | ZMQ.EVENT_CONNECT_RETRIED
                        | ZMQ.EVENT_DISCONNECTED);
        dealer.connect(address);
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

    /// Whether it was us who gave up the handshake: a connection that ends that long after it
    /// stood, or later where the processor is busy, without a greeting (in which all stalls that
    /// were looked at had got stuck). After a greeting the peer may have the request, so that
    /// connection is never made again.
    private boolean cutOff() {
        long stood = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - connectedAt);
        boolean stalled = connected && !greeted && stood >= handshakeMillis - 20;
        if (stalled) {
            stalls++;
        }
        return stalled;
    }

    boolean isOpen() {
        return socket != null;
    }

    void send(byte[] message) {
        var dealer = socket;
        if (dealer != null) {
            dealer.send(message, ZMQ.DONTWAIT);
        }
    }

    /// The next message that has come; those of several frames are dropped.
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
                return Optional.of(frame);
            }
        }
        return Optional.empty();
    }

    /// Whether the peer has been heard.
    boolean greeted() {
        return greeted;
    }

    /// Whether the connection is over. What it delivered before can still be read, so ask this
    /// first.
    boolean ended() {
        return ended;
    }

    /// Handshakes that were cut off.
    int stalls() {
        return stalls;
    }

    /// No exchange uses it from now on.
    void rest(long now) {
        restingSince = now;
    }

    /// Whether a resting connection is still as the last exchange left it: what says something out
    /// of turn is not to be trusted with the next one.
    boolean usable(long now, long longestNanos) {
        return !ended && now - restingSince < longestNanos && next().isEmpty();
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
}
