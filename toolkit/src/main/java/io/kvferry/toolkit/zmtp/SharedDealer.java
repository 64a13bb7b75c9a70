// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.net.ClosingAside;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/// A DEALER connection to one prefiller, shared by all exchanges with it, see [ExchangeFrame]. Each
/// exchange ends independently: by its last answer, its time limit or cancellation; the prefiller
/// is told of the latter two. If the connection ends, all its exchanges end.
///
/// The handshake detects a peer that does not share connections, before anything is sent.
///
/// Threading: [#run] on a virtual thread of its own, which reads until the end; the rest from any
/// thread.
final class SharedDealer {
    /// Requests that are handed to the connection ahead of what the peer has read.
    private static final long MOST_AHEAD_BYTES = 1 << 20;

    /// A peer that owes answers and is silent for this long is pinged.
    private static final Duration QUIET = Duration.ofSeconds(10);

    /// A pinged peer counts as lost when it has been silent for this long.
    private static final Duration LONGEST_QUIET = Duration.ofSeconds(60);

    private final String address;
    private final Duration connectLimit;
    private final Dial dial;
    private final Listener listener;
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<Long, Carried> open = new HashMap<>();

    /// Numbers of exchanges whose requests have not been handed to the connection.
    private final Deque<Long> unsent = new ArrayDeque<>();

    private @Nullable ZmtpConnection connection;
    private long lastNumber;

    /// When it got its first open exchange, or lost its last one.
    private long since = System.nanoTime();

    private boolean closed;
    private boolean silent;
    private boolean asked;

    /// An exchange on this connection.
    private static final class Carried {
        private final Exchange exchange;
        private boolean sent;

        Carried(Exchange exchange) {
            this.exchange = exchange;
        }
    }

    /// What the owner of the connections hears. Nothing is called under a lock.
    interface Listener {
        /// An exchange is over, and the connection goes on.
        void onOver(Exchange exchange);

        /// The connection is over, and with it these exchanges, which have been told.
        void onEnd(SharedDealer connection, List<Exchange> carried);

        /// The peer takes one exchange for each connection; these have not been sent to it. The
        /// connection is over.
        void onRefusedToShare(SharedDealer connection, List<Exchange> carried);
    }

    SharedDealer(Exchange first, Dial dial, Listener listener) {
        this.address = first.address();
        this.connectLimit = first.connectLimit();
        this.dial = dial;
        this.listener = listener;
    }

    String address() {
        return address;
    }

    /// Begins an exchange, also before the connection stands.
    ///
    /// @return false when the connection has ended, and nothing happened
    boolean begin(Exchange exchange) {
        long number = draw();
        if (!exchange.begun(() -> giveUp(number))) {
            listener.onOver(exchange);
            return true;
        }
        boolean stands;
        lock.lock();
        try {
            if (closed) {
                return false;
            }
            if (open.isEmpty()) {
                since = System.nanoTime();
            }
            open.put(number, new Carried(exchange));
            unsent.add(number);
            stands = connection != null;
        } finally {
            lock.unlock();
        }
        if (exchange.isOver()) { // given up before it was here
            giveUp(number);
            return true;
        }
        if (stands) {
            exchange.connected();
        }
        send();
        return true;
    }

    private long draw() {
        lock.lock();
        try {
            return ++lastNumber;
        } finally {
            lock.unlock();
        }
    }

    /// Connects, and reads.
    void run() {
        var when = "does not take connections";
        var problem = new Dial.Problem(ErrorCode.PEER_LOST, when);
        boolean shared = true;
        try {
            var made = dial.open(Deadline.in(connectLimit));
            shared = made.shared();
            if (shared) {
                when = "closed the connection";
                problem = new Dial.Problem(ErrorCode.PEER_LOST, when);
                stands(made);
                read(made);
            }
        } catch (IOException | RuntimeException | Error e) {
            problem = Dial.Problem.of(when, e);
        } finally {
            end(shared, problem);
        }
    }

    private void stands(ZmtpConnection made) {
        made.onSent(this::send);
        List<Exchange> begun;
        lock.lock();
        try {
            connection = made;
            begun = exchanges();
        } finally {
            lock.unlock();
        }
        begun.forEach(Exchange::connected);
        send();
    }

    private List<Exchange> exchanges() {
        var all = new ArrayList<Exchange>(open.size());
        open.values().forEach(carried -> all.add(carried.exchange));
        return all;
    }

    /// Hands requests to the connection while the peer reads them.
    private void send() {
        var refused = new ArrayList<Exchange>();
        var sent = new ArrayList<Exchange>();
        lock.lock();
        try {
            var made = connection;
            while (made != null && !closed && !unsent.isEmpty()) {
                long number = unsent.getFirst();
                var carried = open.get(number);
                long ahead = made.unsentBytes();
                if (carried == null) {
                    unsent.removeFirst();
                } else if (ahead >= MOST_AHEAD_BYTES) {
                    break; // it comes here again when some of that has left
                } else if (!carried.exchange.leaves()) {
                    unsent.removeFirst(); // it is over, and [#giveUp] follows
                } else if (made.offer(
                        ExchangeFrame.encode(
                                number, ExchangeFrame.REQUEST, carried.exchange.request()))) {
                    unsent.removeFirst();
                    carried.sent = true;
                    sent.add(carried.exchange);
                } else if (ahead > 0 || made.isClosed()) {
                    break;
                } else { // requests to others take all the room
                    unsent.removeFirst();
                    removed(number);
                    refused.add(carried.exchange);
                }
            }
        } finally {
            lock.unlock();
        }
        sent.forEach(Exchange::cancellable);
        for (var exchange : refused) {
            exchange.lose(ErrorCode.BACKPRESSURE, "too many requests have not been sent");
            listener.onOver(exchange);
        }
    }

    private void read(ZmtpConnection made) throws IOException {
        while (true) {
            take(made, ExchangeFrame.decode(made.receive()));
            made.release();
        }
    }

    private void take(ZmtpConnection made, ExchangeFrame frame) {
        switch (frame.kind()) {
            case ExchangeFrame.ANSWER -> {
                var exchange = find(frame.exchange());
                if (exchange != null
                        && exchange.answered(frame.payload()) != SideChannel.Reading.MORE) {
                    giveUp(frame.exchange()); // the peer thinks that it goes on
                }
            }
            case ExchangeFrame.LAST -> {
                var exchange = remove(frame.exchange());
                if (exchange != null) {
                    if (exchange.answered(frame.payload()) == SideChannel.Reading.MORE) {
                        exchange.lose(ErrorCode.PROTOCOL, "ends before its last answer");
                    }
                    listener.onOver(exchange);
                }
            }
            case ExchangeFrame.REFUSED -> {
                var exchange = remove(frame.exchange());
                if (exchange != null) {
                    exchange.lose(ErrorCode.BACKPRESSURE, "takes no more requests");
                    listener.onOver(exchange);
                }
            }
            default -> throw frame.unexpected();
        }
    }

    private @Nullable Exchange find(long number) {
        lock.lock();
        try {
            var carried = open.get(number);
            return carried == null ? null : carried.exchange;
        } finally {
            lock.unlock();
        }
    }

    private @Nullable Exchange remove(long number) {
        lock.lock();
        try {
            var carried = removed(number);
            return carried == null ? null : carried.exchange;
        } finally {
            lock.unlock();
        }
    }

    /// Its answers are not wanted any more. Nothing happens where it is over.
    private void giveUp(long number) {
        Carried carried;
        lock.lock();
        try {
            carried = removed(number);
            if (carried == null) {
                return;
            }
            var made = connection;
            if (!carried.sent) {
                unsent.remove(number);
            } else if (made != null) {
                // Where there is no room for it the peer's own time limit does the same later.
                made.offer(ExchangeFrame.encode(number, ExchangeFrame.CANCEL));
            }
        } finally {
            lock.unlock();
        }
        listener.onOver(carried.exchange);
    }

    /// Under the lock.
    private @Nullable Carried removed(long number) {
        var carried = open.remove(number);
        if (carried != null && open.isEmpty()) {
            since = System.nanoTime();
        }
        return carried;
    }

    /// Periodic check: ends the connection when it has carried nothing for `restNanos`, or when a
    /// peer that owes answers does not respond to pings.
    ///
    /// @return false when the connection must be closed
    boolean look(long now, long restNanos) {
        lock.lock();
        try {
            var made = connection;
            if (made == null || closed) {
                return true;
            }
            if (open.isEmpty()) {
                closed = now - since >= restNanos;
                return !closed;
            }
            long quiet = Math.min(now - made.lastHeard(), now - since);
            // Only after a ping: when this process was paused, answers may be waiting unread.
            silent = asked && quiet >= LONGEST_QUIET.toNanos();
            if (quiet < QUIET.toNanos()) {
                asked = false;
            } else if (!silent) {
                made.ping();
                asked = true;
            }
            return !silent;
        } finally {
            lock.unlock();
        }
    }

    private void end(boolean shared, Dial.Problem problem) {
        List<Exchange> left;
        ZmtpConnection made;
        boolean quiet;
        lock.lock();
        try {
            closed = true; // nothing begins here from now on
            left = exchanges();
            open.clear();
            unsent.clear();
            made = connection;
            quiet = silent;
        } finally {
            lock.unlock();
        }
        if (made != null) {
            made.release();
        }
        dial.close();
        if (!shared) {
            listener.onRefusedToShare(this, left);
            return;
        }
        for (var exchange : left) {
            if (quiet) {
                exchange.lose(
                        ErrorCode.PEER_LOST,
                        "gave no sign of life for " + LONGEST_QUIET.toSeconds() + " s");
            } else {
                exchange.lose(problem.code(), problem.text());
            }
        }
        listener.onEnd(this, left);
    }

    /// Ends it where it has no thread.
    void fail(String why) {
        end(true, new Dial.Problem(ErrorCode.INTERNAL, why));
    }

    /// Ends it from outside; its thread then says so.
    void close() {
        ClosingAside.close(this::closeNow);
    }

    void closeNow() {
        lock.lock();
        try {
            closed = true;
        } finally {
            lock.unlock();
        }
        dial.close();
    }
}
