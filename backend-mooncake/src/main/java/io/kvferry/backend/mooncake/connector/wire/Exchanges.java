// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;
import org.zeromq.ZMQException;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Optional;

/// The exchanges of a decoder: a limited number open at a time, the others in turn. Each ends by
/// its last answer, by the loss of its connection, or by its time limit.
///
/// A connection whose exchange came to its proper end rests for a while, ready for the next one
/// with the same prefiller: to make one takes milliseconds, and sometimes stalls.
///
/// Threading: the [SideChannel]'s thread.
final class Exchanges {
    private static final Logger LOG = LoggerFactory.getLogger(Exchanges.class);
    private static final int MAX_OPEN = 256;
    private static final int MAX_QUEUED = 1 << 14;
    private static final int MAX_RESTING = 64;

    private final String name;
    private final ZContext context;
    private final ZMQ.Poller poller;
    private final Optional<CurveKeys> keys;
    private final long restNanos;
    private final Runnable wakeUp;
    private final List<Running> open = new ArrayList<>();
    private final Deque<ZmqExchange> queued = new ArrayDeque<>();

    /// Those that rested last at the end.
    private final Deque<DealerConnection> resting = new ArrayDeque<>();

    private record Running(ZmqExchange exchange, DealerConnection connection) {}

    /// @param rest how long a connection may rest
    Exchanges(
            String name,
            ZContext context,
            ZMQ.Poller poller,
            Optional<CurveKeys> keys,
            Duration rest,
            Runnable wakeUp) {
        this.name = name;
        this.context = context;
        this.poller = poller;
        this.keys = keys;
        this.restNanos = rest.toNanos();
        this.wakeUp = wakeUp;
    }

    void begin(ZmqExchange exchange) {
        if (open.size() < MAX_OPEN) {
            open(exchange);
        } else if (queued.size() < MAX_QUEUED) {
            queued.add(exchange);
        } else {
            lose(
                    exchange,
                    new Failure(
                            ErrorCode.BACKPRESSURE,
                            name + ": request to " + exchange.address() + " not sent"));
        }
    }

    private void open(ZmqExchange exchange) {
        var connection =
                rested(exchange.address())
                        .orElseGet(() ->
                                new DealerConnection(exchange.address(), keys.isPresent(), wakeUp));
        try {
            if (!connection.isOpen()) {
                connection.open(context, poller, keys);
            }
            connection.send(exchange.request());
            open.add(new Running(exchange, connection));
        } catch (ZMQException | IllegalArgumentException e) {
            connection.close(poller);
            var text = "cannot connect to " + exchange.address() + ": " + e.getMessage();
            lose(exchange, new Failure(ErrorCode.PEER_LOST, text));
        }
    }

    private Optional<DealerConnection> rested(String address) {
        closeUnusable();
        for (var each = resting.descendingIterator(); each.hasNext(); ) {
            var connection = each.next();
            if (connection.address().equals(address)) {
                each.remove();
                return Optional.of(connection);
            }
        }
        return Optional.empty();
    }

    private void closeUnusable() {
        long now = System.nanoTime();
        resting.removeIf(connection -> {
            boolean over = !connection.usable(now, restNanos);
            if (over) {
                connection.close(poller);
            }
            return over;
        });
    }

    /// Takes what has come, ends what is over, opens what may begin.
    void serve() {
        for (int i = open.size() - 1; i >= 0; i--) {
            serve(open.get(i));
        }
        closeUnusable();
        while (open.size() < MAX_OPEN && !queued.isEmpty()) {
            open(queued.poll());
        }
    }

    private void serve(Running running) {
        var exchange = running.exchange();
        // Before the answers: a peer that answers and leaves has answered.
        boolean ended = running.connection().ended();
        var next = SideChannel.Reading.MORE;
        while (next == SideChannel.Reading.MORE) {
            var message = running.connection().next();
            if (message.isEmpty()) {
                break;
            }
            exchange.answered();
            next = answer(exchange, message.get());
        }
        switch (next) {
            case DONE -> rest(running);
            case GIVE_UP -> forget(running);
            case MORE ->
                    exchange.fate(running.connection(), ended)
                            .ifPresent(failure -> {
                                forget(running);
                                lose(exchange, failure);
                            });
        }
    }

    private SideChannel.Reading answer(ZmqExchange exchange, byte[] message) {
        try {
            return exchange.answers().onAnswer(message);
        } catch (RuntimeException e) {
            LOG.error("{}: handler of answers failed", name, e);
            lose(exchange, Failure.of(e));
            return SideChannel.Reading.GIVE_UP;
        }
    }

    private void lose(ZmqExchange exchange, Failure failure) {
        SideChannel.guard(name, () -> exchange.answers().onLost(failure));
    }

    private void rest(Running running) {
        open.remove(running);
        running.connection().rest(System.nanoTime());
        resting.addLast(running.connection());
        if (resting.size() > MAX_RESTING) {
            resting.removeFirst().close(poller);
        }
    }

    private void forget(Running running) {
        open.remove(running);
        running.connection().close(poller);
    }

    /// The shortest of `nanos` and the times that open exchanges have left.
    long untilDeadline(long nanos) {
        long least = nanos;
        for (var running : open) {
            least = Math.min(least, running.exchange().deadline().remainingNanos());
        }
        return least;
    }

    /// Ends all.
    void closeAll(Failure failure) {
        for (var running : new ArrayList<>(open)) {
            forget(running);
            lose(running.exchange(), failure);
        }
        queued.forEach(exchange -> lose(exchange, failure));
        queued.clear();
        resting.forEach(connection -> connection.close(poller));
        resting.clear();
    }
}
