// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.bounded.LoopReport;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// The exchanges of a decoder and the connections that carry them. [Turns] decides when an exchange
/// may begin.
///
/// After an exchange has ended normally, its connection is kept for a while and reused for the next
/// exchange with the same prefiller. A prefiller that refused to share connections is asked over
/// separate ones until it has been idle.
///
/// Threading: any thread; nothing is called back under the lock.
final class Exchanges implements DealerConnection.Listener, SharedDealer.Listener, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Exchanges.class);
    private static final String NO_THREAD = "no thread to ask it";

    /// How often shared connections are looked at, at least.
    private static final long LONGEST_LOOK = TimeUnit.SECONDS.toNanos(5);

    private static final int MOST_RESTING = 256;

    /// Unsent requests and answers that are being received.
    private static final long MOST_BYTES = 256L << 20;

    private static final int PART_OF_HEAP = 8;

    private final String name;
    private final Optional<CurveKeys> keys;
    private final ScheduledExecutorService clock;
    private final long restNanos;
    private final Turns turns;
    private final ByteBudget room = ByteBudget.ofHeap(MOST_BYTES, PART_OF_HEAP);
    private final ByteBudget unsentRoom = ByteBudget.ofHeap(MOST_BYTES, PART_OF_HEAP);
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<String, Connected> connected = new HashMap<>();
    private final Set<DealerConnection> connections = new HashSet<>();
    private final Set<SharedDealer> shared = new HashSet<>();

    /// Exchanges whose turn has come while this thread begins another one.
    private final ThreadLocal<@Nullable Deque<Exchange>> beginning = new ThreadLocal<>();

    private volatile Consumer<String> idleEnd = _ -> {};
    private boolean closed;

    /// Connections to one prefiller that may carry the next exchange.
    private static final class Connected {
        /// Those that rested last at the end.
        private final Deque<DealerConnection> resting = new ArrayDeque<>();

        private Optional<SharedDealer> shared = Optional.empty();

        boolean none() {
            return resting.isEmpty() && shared.isEmpty();
        }
    }

    /// @param rest how long a connection may rest
    Exchanges(
            String name, Optional<CurveKeys> keys, ScheduledExecutorService clock, Duration rest) {
        this.name = name;
        this.keys = keys;
        this.clock = clock;
        this.restNanos = rest.toNanos();
        this.turns = new Turns(name, ByteBudget.ofHeap(MOST_BYTES, PART_OF_HEAP));
        long look = Math.clamp(restNanos / 4, TimeUnit.SECONDS.toNanos(1), LONGEST_LOOK);
        var _ =
                clock.scheduleWithFixedDelay(
                        LastingLoop.repeated(() -> SideChannel.guard(name, this::closeRested)),
                        look,
                        look,
                        TimeUnit.NANOSECONDS);
    }

    /// As [SideChannel#onIdleEnd].
    void onIdleEnd(Consumer<String> listener) {
        idleEnd = listener;
    }

    void begin(Exchange exchange) {
        switch (turns.admit(exchange)) {
            case Turns.Verdict.Begin _ -> start(exchange);
            case Turns.Verdict.Wait _ -> exchange.queued(() -> turns.leaveQueue(exchange));
            case Turns.Verdict.Refused(var failure) -> exchange.lose(failure);
        }
    }

    /// Begins an exchange whose turn has come.
    ///
    /// An exchange that ends while it begins, for example because it was cancelled, passes its turn
    /// to the next one, which is begun in a loop and not recursively: the stack must not grow with
    /// the queue.
    private void start(Exchange exchange) {
        Deque<Exchange> mine;
        try {
            var outer = beginning.get();
            if (outer != null) {
                outer.add(exchange);
                return;
            }
            mine = new ArrayDeque<>();
            beginning.set(mine);
        } catch (OutOfMemoryError e) {
            loseAll(exchange, Failure.of(e));
            return;
        }
        try {
            for (Exchange next = exchange; next != null; next = mine.poll()) {
                startGuarded(next);
            }
        } finally {
            beginning.remove();
        }
    }

    /// Fails an exchange that cannot be begun for lack of memory, and those that get its turn.
    private void loseAll(Exchange first, Failure why) {
        for (Exchange next = first; next != null; next = turns.ended(next)) {
            next.lose(why);
        }
    }

    private void startGuarded(Exchange exchange) {
        try {
            if (exchange.isOver()) { // its time ran out in the queue
                ended(exchange);
            } else if (turns.isSharing(exchange)) {
                startSharing(exchange);
            } else {
                startAlone(exchange);
            }
        } catch (RuntimeException | Error e) { // want of memory: the others begin all the same
            LoopReport.ERROR.log(
                    LOG, "{}: an exchange with {} did not begin", name, exchange.address(), e);
            exchange.lose(Failure.of(e));
            ended(exchange);
        }
    }

    private void startSharing(Exchange exchange) {
        boolean begun = false;
        while (!begun) {
            var found = shared(exchange);
            if (found.isEmpty()) {
                exchange.lose(turns.closed());
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
            var prefiller = connected.computeIfAbsent(exchange.address(), _ -> new Connected());
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
            connection.fail(NO_THREAD); // first: the log takes memory
            LoopReport.WARN.log(LOG, "{}: no thread to ask {}", name, connection.address(), e);
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
            var prefiller = connected.get(connection.address());
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
            exchange.lose(turns.closed());
            ended(exchange);
            return;
        }
        try {
            var _ = Thread.ofVirtual().name(name + "-exchange").start(connection::run);
        } catch (RuntimeException | Error e) { // no memory for a thread, for one
            connection.end(ErrorCode.INTERNAL, NO_THREAD); // first: the log takes memory
            LoopReport.WARN.log(LOG, "{}: no thread to ask {}", name, exchange.address(), e);
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
            var prefiller = connected.get(address);
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
            for (var prefiller : connected.values()) {
                prefiller.resting.removeIf(connection ->
                        now - connection.restingSince() >= restNanos && old.add(connection));
            }
            connected.values().removeIf(Connected::none);
        } finally {
            lock.unlock();
        }
        turns.forgetIdle(this::isKept);
        old.forEach(DealerConnection::close);
        for (var connection : looked) {
            if (!connection.look(now, restNanos)) {
                connection.close();
            }
        }
    }

    private boolean isKept(String address) {
        lock.lock();
        try {
            return connected.containsKey(address);
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void onFree(DealerConnection connection, Exchange done) {
        try {
            rest(connection).ifPresent(DealerConnection::close);
        } finally {
            ended(done);
        }
    }

    /// @return the one that is to be closed
    private Optional<DealerConnection> rest(DealerConnection connection) {
        lock.lock();
        try {
            if (closed || restNanos == 0) {
                return Optional.of(connection);
            }
            connected
                    .computeIfAbsent(connection.address(), _ -> new Connected())
                    .resting
                    .addLast(connection);
            return surplus();
        } finally {
            lock.unlock();
        }
    }

    /// The one that has rested longest, if too many do.
    private Optional<DealerConnection> surplus() {
        int resting = connected.values().stream().mapToInt(each -> each.resting.size()).sum();
        if (resting <= MOST_RESTING) {
            return Optional.empty();
        }
        return connected.values().stream()
                .filter(each -> !each.resting.isEmpty())
                .min(Comparator.comparingLong(each -> each.resting.getFirst().restingSince()))
                .map(each -> each.resting.removeFirst());
    }

    @Override
    public void onEnd(DealerConnection connection, @Nullable Exchange carried) {
        lock.lock();
        try {
            connections.remove(connection);
            var prefiller = connected.get(connection.address());
            if (prefiller != null) {
                prefiller.resting.remove(connection);
            }
        } finally {
            lock.unlock();
        }
        if (carried != null) {
            ended(carried);
        } else {
            endedIdle(connection.address());
        }
    }

    private void endedIdle(String address) {
        if (!isConnected(address)) {
            SideChannel.guard(name, () -> idleEnd.accept(address));
        }
    }

    private boolean isConnected(String address) {
        lock.lock();
        try {
            return connections.stream().anyMatch(each -> each.address().equals(address))
                    || shared.stream().anyMatch(each -> each.address().equals(address));
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void onOver(Exchange exchange) {
        ended(exchange);
    }

    @Override
    public void onEnd(SharedDealer connection, List<Exchange> carried) {
        dropShared(connection);
        carried.forEach(this::ended);
        if (carried.isEmpty()) {
            endedIdle(connection.address());
        }
    }

    @Override
    public void onRefusedToShare(SharedDealer connection, List<Exchange> carried) {
        LOG.debug("{}: {} does not share connections", name, connection.address());
        dropShared(connection);
        carried.forEach(Exchange::again);
        var sorted = turns.refusedToShare(connection.address(), carried);
        sorted.waiting().forEach(exchange -> exchange.queued(() -> turns.leaveQueue(exchange)));
        sorted.beginning().forEach(this::start);
    }

    /// An exchange that had its turn is over: another one may begin.
    private void ended(Exchange exchange) {
        var next = turns.ended(exchange);
        if (next != null) {
            start(next);
        }
    }

    /// Ends all.
    @Override
    public void close() {
        List<DealerConnection> left;
        List<SharedDealer> leftShared;
        lock.lock();
        try {
            closed = true;
            left = List.copyOf(connections);
            leftShared = List.copyOf(shared);
        } finally {
            lock.unlock();
        }
        var lost = turns.close();
        lost.forEach(
                exchange -> exchange.lose(new Failure(ErrorCode.CLOSED, name + " was closed")));
        left.forEach(DealerConnection::closeNow);
        leftShared.forEach(SharedDealer::closeNow);
        LOG.debug("{}: {} exchanges ended by closing", name, lost.size());
    }
}
