// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.zmtp.SideChannel.Turn;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/// The exchanges of a decoder: to each prefiller a limited number at a time, the others in turn, so
/// that a slow prefiller holds up nobody but itself. Long exchanges and short ones have separate
/// limits and separate queues.
///
/// A connection whose exchange came to its proper end rests for a while, ready for the next one
/// with the same prefiller.
///
/// Threading: any thread; nothing is called back under the lock.
final class Exchanges implements DealerConnection.Listener, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Exchanges.class);

    /// Exchanges of one kind with one prefiller that are open at a time.
    static final int MOST_PER_PREFILLER = 256;

    /// Of one kind.
    private static final int MOST_OPEN = 4096;

    private static final int MOST_QUEUED = 1 << 14;
    private static final int MOST_RESTING = 256;

    /// Unsent requests and answers that are being received.
    private static final long MOST_BYTES = 256L << 20;

    private static final int PART_OF_HEAP = 8;

    private final String name;
    private final Optional<CurveKeys> keys;
    private final ScheduledExecutorService clock;
    private final long restNanos;
    private final ByteBudget room = ByteBudget.ofHeap(MOST_BYTES, PART_OF_HEAP);
    private final ByteBudget requestRoom = ByteBudget.ofHeap(MOST_BYTES, PART_OF_HEAP);
    private final ByteBudget unsentRoom = ByteBudget.ofHeap(MOST_BYTES, PART_OF_HEAP);
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<String, Prefiller> prefillers = new HashMap<>();
    private final Set<Exchange> exchanges = new HashSet<>();
    private final Set<DealerConnection> connections = new HashSet<>();
    private final Map<Turn, Integer> open = new EnumMap<>(Turn.class);
    private int queued;
    private boolean closed;

    /// What goes on with one prefiller.
    private static final class Prefiller {
        private final Map<Turn, Line> lines = new EnumMap<>(Turn.class);

        /// Those that rested last at the end.
        private final Deque<DealerConnection> resting = new ArrayDeque<>();

        Line line(Turn turn) {
            return lines.computeIfAbsent(turn, _ -> new Line());
        }

        boolean idle() {
            return resting.isEmpty() && lines.values().stream().allMatch(Line::idle);
        }
    }

    /// The exchanges of one kind with one prefiller.
    private static final class Line {
        private final Deque<Exchange> waiting = new ArrayDeque<>();
        private int open;

        boolean idle() {
            return open == 0 && waiting.isEmpty();
        }
    }

    /// @param rest how long a connection may rest
    Exchanges(
            String name, Optional<CurveKeys> keys, ScheduledExecutorService clock, Duration rest) {
        this.name = name;
        this.keys = keys;
        this.clock = clock;
        this.restNanos = rest.toNanos();
        long look = Math.max(TimeUnit.SECONDS.toNanos(1), restNanos / 4);
        var _ =
                clock.scheduleWithFixedDelay(
                        () -> SideChannel.guard(name, this::closeRested),
                        look,
                        look,
                        TimeUnit.NANOSECONDS);
    }

    void begin(Exchange exchange) {
        Optional<Failure> refused = Optional.empty();
        boolean wait = false;
        lock.lock();
        try {
            if (closed) {
                refused = Optional.of(new Failure(ErrorCode.CLOSED, name + " is closed"));
            } else if (!requestRoom.take(exchange.request().length)) {
                refused = Optional.of(notSent(exchange));
            } else {
                exchanges.add(exchange);
                var line =
                        prefillers
                                .computeIfAbsent(exchange.address(), _ -> new Prefiller())
                                .line(exchange.turn());
                wait = line.open >= MOST_PER_PREFILLER || open(exchange.turn()) >= MOST_OPEN;
                if (wait && queued >= MOST_QUEUED) {
                    refused = Optional.of(notSent(exchange));
                    forget(exchange);
                } else if (wait) {
                    line.waiting.add(exchange);
                    queued++;
                } else {
                    count(line, exchange.turn(), 1);
                }
            }
        } finally {
            lock.unlock();
        }
        if (refused.isPresent()) {
            exchange.lose(refused.get());
        } else if (wait) {
            exchange.queued(() -> leaveQueue(exchange));
        } else {
            start(exchange);
        }
    }

    private void leaveQueue(Exchange exchange) {
        lock.lock();
        try {
            var prefiller = prefillers.get(exchange.address());
            if (prefiller != null && prefiller.line(exchange.turn()).waiting.remove(exchange)) {
                queued--;
                forget(exchange);
            }
        } finally {
            lock.unlock();
        }
    }

    private Failure notSent(Exchange exchange) {
        return new Failure(
                ErrorCode.BACKPRESSURE,
                name + ": request to " + exchange.address() + " not sent, too many are open");
    }

    private int open(Turn turn) {
        return open.getOrDefault(turn, 0);
    }

    private void count(Line line, Turn turn, int change) {
        line.open += change;
        open.merge(turn, change, Integer::sum);
    }

    private void forget(Exchange exchange) {
        if (exchanges.remove(exchange)) {
            requestRoom.give(exchange.request().length);
        }
    }

    /// On a connection that rests, else on a new one.
    private void start(Exchange exchange) {
        if (exchange.isOver()) { // its time ran out in the queue
            ended(exchange);
            return;
        }
        for (var rested = rested(exchange.address());
                rested.isPresent();
                rested = rested(exchange.address())) {
            var connection = rested.get();
            if (!exchange.begun(connection::close)) {
                connection.close(); // it rests no more
                ended(exchange);
                return;
            }
            if (connection.begin(exchange)) {
                return;
            }
        }
        var connection = new DealerConnection(exchange, keys, room, unsentRoom, clock, this);
        if (!exchange.begun(connection::close)) {
            ended(exchange);
            return;
        }
        if (!add(connection)) {
            exchange.lose(new Failure(ErrorCode.CLOSED, name + " is closed"));
            ended(exchange);
            return;
        }
        try {
            var _ = Thread.ofVirtual().name(name + "-exchange").start(connection::run);
        } catch (RuntimeException | Error e) { // no memory for a thread, for one
            connection.end(ErrorCode.INTERNAL, "no thread to ask it: " + e);
        }
    }

    private boolean add(DealerConnection connection) {
        lock.lock();
        try {
            if (!closed) {
                connections.add(connection);
            }
            return !closed;
        } finally {
            lock.unlock();
        }
    }

    private Optional<DealerConnection> rested(String address) {
        lock.lock();
        try {
            var prefiller = prefillers.get(address);
            if (prefiller == null) {
                return Optional.empty();
            }
            var connection = prefiller.resting.pollLast();
            if (connection == null) {
                return Optional.empty();
            }
            if (System.nanoTime() - connection.restingSince() < restNanos) {
                return Optional.of(connection);
            }
            prefiller.resting.addLast(connection);
            return Optional.empty();
        } finally {
            lock.unlock();
        }
    }

    private void closeRested() {
        var old = new ArrayList<DealerConnection>();
        long now = System.nanoTime();
        lock.lock();
        try {
            for (var prefiller : prefillers.values()) {
                prefiller.resting.removeIf(connection ->
                        now - connection.restingSince() >= restNanos && old.add(connection));
            }
            prefillers.values().removeIf(Prefiller::idle);
        } finally {
            lock.unlock();
        }
        old.forEach(DealerConnection::close);
    }

    @Override
    public void onFree(DealerConnection connection, Exchange done) {
        Optional<DealerConnection> surplus = Optional.empty();
        lock.lock();
        try {
            var prefiller = prefillers.get(connection.address());
            if (closed || prefiller == null || restNanos == 0) {
                surplus = Optional.of(connection);
            } else {
                prefiller.resting.addLast(connection);
                surplus = surplus();
            }
        } finally {
            lock.unlock();
        }
        surplus.ifPresent(DealerConnection::close);
        ended(done);
    }

    /// The one that has rested longest, if too many do.
    private Optional<DealerConnection> surplus() {
        int resting = prefillers.values().stream().mapToInt(each -> each.resting.size()).sum();
        if (resting <= MOST_RESTING) {
            return Optional.empty();
        }
        return prefillers.values().stream()
                .filter(each -> !each.resting.isEmpty())
                .min(Comparator.comparingLong(each -> each.resting.getFirst().restingSince()))
                .map(each -> each.resting.removeFirst());
    }

    @Override
    public void onEnd(DealerConnection connection, Optional<Exchange> carried) {
        lock.lock();
        try {
            connections.remove(connection);
            var prefiller = prefillers.get(connection.address());
            if (prefiller != null) {
                prefiller.resting.remove(connection);
            }
        } finally {
            lock.unlock();
        }
        carried.ifPresent(this::ended);
    }

    /// An exchange that had its turn is over: another one may begin.
    private void ended(Exchange exchange) {
        Optional<Exchange> next;
        lock.lock();
        try {
            forget(exchange);
            var prefiller = prefillers.get(exchange.address());
            if (prefiller != null) { // none goes while it has one open
                count(prefiller.line(exchange.turn()), exchange.turn(), -1);
            }
            next = closed ? Optional.empty() : next(exchange.turn());
        } finally {
            lock.unlock();
        }
        next.ifPresent(this::start);
    }

    /// Of the prefiller with the fewest open ones, among those that have some waiting.
    private Optional<Exchange> next(Turn turn) {
        if (queued == 0) {
            return Optional.empty();
        }
        return prefillers.values().stream()
                .map(prefiller -> prefiller.line(turn))
                .filter(each -> !each.waiting.isEmpty() && each.open < MOST_PER_PREFILLER)
                .min(Comparator.comparingInt(each -> each.open))
                .map(line -> {
                    queued--;
                    count(line, turn, 1);
                    return line.waiting.remove();
                });
    }

    /// Ends all.
    @Override
    public void close() {
        List<Exchange> lost;
        List<DealerConnection> left;
        lock.lock();
        try {
            closed = true;
            lost = List.copyOf(exchanges);
            left = List.copyOf(connections);
            prefillers
                    .values()
                    .forEach(each -> each.lines.values().forEach(line -> line.waiting.clear()));
            queued = 0;
        } finally {
            lock.unlock();
        }
        lost.forEach(
                exchange -> exchange.lose(new Failure(ErrorCode.CLOSED, name + " was closed")));
        left.forEach(DealerConnection::closeNow);
        LOG.debug("{}: {} exchanges ended by closing", name, lost.size());
    }
}
