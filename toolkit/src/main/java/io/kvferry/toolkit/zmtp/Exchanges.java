// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.zmtp.SideChannel.Carriage;
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
/// limits and separate queues, and so have those that share a connection and those that have one
/// for themselves.
///
/// A connection whose exchange came to its proper end rests for a while, ready for the next one
/// with the same prefiller. A prefiller that does not share connections is asked over connections
/// of that kind until nothing goes on with it.
///
/// Threading: any thread; nothing is called back under the lock.
final class Exchanges implements DealerConnection.Listener, SharedDealer.Listener, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Exchanges.class);

    /// Exchanges of one kind with one prefiller that are open at a time, each on a connection of
    /// its own.
    static final int MOST_PER_PREFILLER = 256;

    /// On a connection that they share.
    static final int MOST_SHARING = 4096;

    /// How often shared connections are looked at, at least.
    private static final long LONGEST_LOOK = TimeUnit.SECONDS.toNanos(5);

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
    private final Map<Exchange, Kind> exchanges = new HashMap<>();
    private final Set<DealerConnection> connections = new HashSet<>();
    private final Set<SharedDealer> shared = new HashSet<>();
    private final Map<Kind, Integer> open = new EnumMap<>(Kind.class);
    private int queued;
    private boolean closed;

    /// What has limits and queues of its own.
    private enum Kind {
        LONG(MOST_PER_PREFILLER, 1 << 12),
        SHORT(MOST_PER_PREFILLER, 1 << 12),
        LONG_SHARING(MOST_SHARING, 1 << 16),
        SHORT_SHARING(MOST_SHARING, 1 << 16);

        /// Open at a time, with one prefiller and with all.
        private final int mostPerPrefiller;

        private final int most;

        Kind(int mostPerPrefiller, int most) {
            this.mostPerPrefiller = mostPerPrefiller;
            this.most = most;
        }

        static Kind of(Turn turn, boolean sharing) {
            return switch (turn) {
                case LONG -> sharing ? LONG_SHARING : LONG;
                case SHORT -> sharing ? SHORT_SHARING : SHORT;
            };
        }

        boolean sharing() {
            return this == LONG_SHARING || this == SHORT_SHARING;
        }
    }

    /// What goes on with one prefiller.
    private static final class Prefiller {
        private final Map<Kind, Line> lines = new EnumMap<>(Kind.class);

        /// Those that rested last at the end.
        private final Deque<DealerConnection> resting = new ArrayDeque<>();

        private Optional<SharedDealer> shared = Optional.empty();
        private boolean refusesToShare;

        Line line(Kind kind) {
            return lines.computeIfAbsent(kind, _ -> new Line());
        }

        Kind kind(Exchange exchange) {
            boolean sharing = exchange.carriage() == Carriage.SHARED && !refusesToShare;
            return Kind.of(exchange.turn(), sharing);
        }

        boolean idle() {
            return resting.isEmpty()
                    && shared.isEmpty()
                    && lines.values().stream().allMatch(Line::idle);
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
        long look = Math.clamp(restNanos / 4, TimeUnit.SECONDS.toNanos(1), LONGEST_LOOK);
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
                wait = mustWait(exchange);
                if (wait && queued > MOST_QUEUED) {
                    refused = Optional.of(notSent(exchange));
                    unqueue(exchange);
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

    /// Gives it a turn or a place in the queue. Under the lock.
    private boolean mustWait(Exchange exchange) {
        var prefiller = prefillers.computeIfAbsent(exchange.address(), _ -> new Prefiller());
        var kind = prefiller.kind(exchange);
        exchanges.put(exchange, kind);
        var line = prefiller.line(kind);
        boolean wait = line.open >= kind.mostPerPrefiller || open(kind) >= kind.most;
        if (wait) {
            line.waiting.add(exchange);
            queued++;
        } else {
            count(line, kind, 1);
        }
        return wait;
    }

    private void leaveQueue(Exchange exchange) {
        lock.lock();
        try {
            unqueue(exchange);
        } finally {
            lock.unlock();
        }
    }

    /// Under the lock.
    private void unqueue(Exchange exchange) {
        var prefiller = prefillers.get(exchange.address());
        var kind = exchanges.get(exchange);
        if (prefiller != null && kind != null && prefiller.line(kind).waiting.remove(exchange)) {
            queued--;
            forget(exchange);
        }
    }

    private Failure notSent(Exchange exchange) {
        return new Failure(
                ErrorCode.BACKPRESSURE,
                name + ": request to " + exchange.address() + " not sent, too many are open");
    }

    private int open(Kind kind) {
        return open.getOrDefault(kind, 0);
    }

    private void count(Line line, Kind kind, int change) {
        line.open += change;
        open.merge(kind, change, Integer::sum);
    }

    private Optional<Kind> forget(Exchange exchange) {
        var kind = Optional.ofNullable(exchanges.remove(exchange));
        kind.ifPresent(_ -> requestRoom.give(exchange.request().length));
        return kind;
    }

    private void start(Exchange exchange) {
        if (exchange.isOver()) { // its time ran out in the queue
            ended(exchange);
        } else if (isSharing(exchange)) {
            startSharing(exchange);
        } else {
            startAlone(exchange);
        }
    }

    private boolean isSharing(Exchange exchange) {
        lock.lock();
        try {
            var kind = exchanges.get(exchange);
            return kind != null && kind.sharing();
        } finally {
            lock.unlock();
        }
    }

    private void startSharing(Exchange exchange) {
        boolean begun = false;
        while (!begun) {
            var found = shared(exchange);
            if (found.isEmpty()) {
                exchange.lose(new Failure(ErrorCode.CLOSED, name + " is closed"));
                ended(exchange);
                return;
            }
            var connection = found.get().connection();
            begun = connection.begin(exchange);
            if (!begun) {
                dropShared(connection); // it has ended meanwhile
            }
            if (found.get().made()) {
                run(connection);
            }
        }
    }

    /// @param made whether it has been made just now, and has no thread
    private record Shared(SharedDealer connection, boolean made) {}

    /// The connection to a prefiller that its exchanges share; empty when closed.
    private Optional<Shared> shared(Exchange exchange) {
        lock.lock();
        try {
            if (closed) {
                return Optional.empty();
            }
            var prefiller = prefillers.computeIfAbsent(exchange.address(), _ -> new Prefiller());
            var known = prefiller.shared;
            if (known.isPresent()) {
                return Optional.of(new Shared(known.get(), false));
            }
            var made = new SharedDealer(exchange, dial(exchange, true), this);
            prefiller.shared = Optional.of(made);
            shared.add(made);
            return Optional.of(new Shared(made, true));
        } finally {
            lock.unlock();
        }
    }

    private void run(SharedDealer connection) {
        try {
            var _ = Thread.ofVirtual().name(name + "-shared").start(connection::run);
        } catch (RuntimeException | Error e) { // no memory for a thread, for one
            connection.fail("no thread to ask it: " + e);
        }
    }

    private Dial dial(Exchange exchange, boolean sharing) {
        var terms = new ZmtpHandshake.Terms(ZmtpHandshake.Role.DEALER, keys, sharing);
        return new Dial(exchange.address(), terms, room, unsentRoom, clock);
    }

    private void dropShared(SharedDealer connection) {
        lock.lock();
        try {
            shared.remove(connection);
            var prefiller = prefillers.get(connection.address());
            if (prefiller != null && prefiller.shared.equals(Optional.of(connection))) {
                prefiller.shared = Optional.empty();
            }
        } finally {
            lock.unlock();
        }
    }

    /// On a connection that rests, else on a new one.
    private void startAlone(Exchange exchange) {
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
        var connection = new DealerConnection(exchange, dial(exchange, false), this);
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
        List<SharedDealer> looked;
        long now = System.nanoTime();
        lock.lock();
        try {
            looked = List.copyOf(shared);
            for (var prefiller : prefillers.values()) {
                prefiller.resting.removeIf(connection ->
                        now - connection.restingSince() >= restNanos && old.add(connection));
            }
            prefillers.values().removeIf(Prefiller::idle);
        } finally {
            lock.unlock();
        }
        old.forEach(DealerConnection::close);
        for (var connection : looked) {
            if (!connection.look(now, restNanos)) {
                connection.close();
            }
        }
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

    @Override
    public void onOver(Exchange exchange) {
        ended(exchange);
    }

    @Override
    public void onEnd(SharedDealer connection, List<Exchange> carried) {
        dropShared(connection);
        carried.forEach(this::ended);
    }

    @Override
    public void onRefusedToShare(SharedDealer connection, List<Exchange> carried) {
        LOG.debug("{}: {} does not share connections", name, connection.address());
        dropShared(connection);
        carried.forEach(Exchange::again);
        var turn = new ArrayList<Exchange>();
        var waiting = new ArrayList<Exchange>();
        lock.lock();
        try {
            var prefiller = prefillers.computeIfAbsent(connection.address(), _ -> new Prefiller());
            for (var exchange : carried) {
                var kind = exchanges.get(exchange);
                if (kind != null) {
                    count(prefiller.line(kind), kind, -1);
                }
            }
            var all = new ArrayList<>(carried);
            all.addAll(unqueueSharing(prefiller));
            prefiller.refusesToShare = true;
            for (var exchange : all) {
                if (exchanges.containsKey(exchange)) {
                    (mustWait(exchange) ? waiting : turn).add(exchange);
                }
            }
        } finally {
            lock.unlock();
        }
        waiting.forEach(exchange -> exchange.queued(() -> leaveQueue(exchange)));
        turn.forEach(this::start);
    }

    /// Under the lock.
    private List<Exchange> unqueueSharing(Prefiller prefiller) {
        var all = new ArrayList<Exchange>();
        for (var kind : Kind.values()) {
            if (kind.sharing()) {
                var line = prefiller.line(kind);
                all.addAll(line.waiting);
                queued -= line.waiting.size();
                line.waiting.clear();
            }
        }
        return all;
    }

    /// An exchange that had its turn is over: another one may begin.
    private void ended(Exchange exchange) {
        Optional<Exchange> next;
        lock.lock();
        try {
            var kind = forget(exchange);
            var prefiller = prefillers.get(exchange.address());
            if (prefiller != null && kind.isPresent()) { // none goes while it has one open
                count(prefiller.line(kind.get()), kind.get(), -1);
            }
            next = closed ? Optional.empty() : kind.flatMap(this::next);
        } finally {
            lock.unlock();
        }
        next.ifPresent(this::start);
    }

    /// Of the prefiller with the fewest open ones, among those that have some waiting.
    private Optional<Exchange> next(Kind kind) {
        if (queued == 0) {
            return Optional.empty();
        }
        return prefillers.values().stream()
                .map(prefiller -> prefiller.line(kind))
                .filter(each -> !each.waiting.isEmpty() && each.open < kind.mostPerPrefiller)
                .min(Comparator.comparingInt(each -> each.open))
                .map(line -> {
                    queued--;
                    count(line, kind, 1);
                    return line.waiting.remove();
                });
    }

    /// Ends all.
    @Override
    public void close() {
        List<Exchange> lost;
        List<DealerConnection> left;
        List<SharedDealer> leftShared;
        lock.lock();
        try {
            closed = true;
            lost = List.copyOf(exchanges.keySet());
            left = List.copyOf(connections);
            leftShared = List.copyOf(shared);
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
        leftShared.forEach(SharedDealer::closeNow);
        LOG.debug("{}: {} exchanges ended by closing", name, lost.size());
    }
}
