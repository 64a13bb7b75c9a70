// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;
import org.zeromq.ZMQException;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/// The exchanges of a decoder: a limited number open at a time, the others in turn. Each ends by
/// its last answer, by the loss of its connection, or by its time limit.
///
/// Threading: the [SideChannel]'s thread.
final class Exchanges {
    private static final Logger LOG = LoggerFactory.getLogger(Exchanges.class);
    private static final int MAX_OPEN = 256;
    private static final int MAX_QUEUED = 1 << 14;

    private final String name;
    private final ZContext context;
    private final ZMQ.Poller poller;
    private final List<ZmqExchange> open = new ArrayList<>();
    private final Deque<ZmqExchange> queued = new ArrayDeque<>();

    Exchanges(String name, ZContext context, ZMQ.Poller poller) {
        this.name = name;
        this.context = context;
        this.poller = poller;
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
        try {
            exchange.open(context, poller);
            open.add(exchange);
        } catch (ZMQException | IllegalArgumentException e) {
            exchange.close(poller);
            var text = "cannot connect to " + exchange.address() + ": " + e.getMessage();
            lose(exchange, new Failure(ErrorCode.PEER_LOST, text));
        }
    }

    /// Takes what has come, ends what is over, opens what may begin.
    void serve() {
        for (int i = open.size() - 1; i >= 0; i--) {
            serve(open.get(i));
        }
        while (open.size() < MAX_OPEN && !queued.isEmpty()) {
            open(queued.poll());
        }
    }

    private void serve(ZmqExchange exchange) {
        // Before the answers: a peer that answers and leaves has answered.
        boolean ended = exchange.ended();
        boolean over = false;
        for (var message = exchange.next();
                message.isPresent() && !over;
                message = exchange.next()) {
            over = answer(exchange, message.get());
        }
        if (over) {
            forget(exchange);
        } else {
            exchange.fate(ended)
                    .ifPresent(failure -> {
                        forget(exchange);
                        lose(exchange, failure);
                    });
        }
    }

    private boolean answer(ZmqExchange exchange, byte[] message) {
        try {
            return exchange.answers().onAnswer(message);
        } catch (RuntimeException e) {
            LOG.error("{}: handler of answers failed", name, e);
            lose(exchange, Failure.of(e));
            return true;
        }
    }

    private void lose(ZmqExchange exchange, Failure failure) {
        SideChannel.guard(name, () -> exchange.answers().onLost(failure));
    }

    private void forget(ZmqExchange exchange) {
        open.remove(exchange);
        exchange.close(poller);
    }

    /// The shortest of `nanos` and the times that open exchanges have left.
    long untilDeadline(long nanos) {
        long least = nanos;
        for (var exchange : open) {
            least = Math.min(least, exchange.deadline().remainingNanos());
        }
        return least;
    }

    /// Ends all.
    void closeAll(Failure failure) {
        for (var exchange : new ArrayList<>(open)) {
            forget(exchange);
            lose(exchange, failure);
        }
        queued.forEach(exchange -> lose(exchange, failure));
        queued.clear();
    }
}
