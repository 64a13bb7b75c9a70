// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.bounded.GrowSafeQueue;
import io.kvferry.toolkit.zmtp.SideChannel.Carriage;
import io.kvferry.toolkit.zmtp.SideChannel.Turn;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Predicate;

/// Decides when a decoder's exchanges may begin: the number per prefiller is limited and the others
/// are queued, so that a slow prefiller delays only its own exchanges. Long and short exchanges
/// have separate limits and queues, and so have exchanges on shared and on separate connections.
///
/// Threading: any thread; nothing is called back under the lock.
final class Turns {
    /// Exchanges of one kind with one prefiller that are open at a time, each on a connection of
    /// its own.
    static final int MOST_PER_PREFILLER = 256;

    /// On a connection that they share.
    static final int MOST_SHARING = 4096;

    static final int MOST_QUEUED = 1 << 14;

    private final String name;
    private final ByteBudget requestRoom;
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<String, Prefiller> prefillers = new HashMap<>();
    private final Map<Exchange, Kind> exchanges = new HashMap<>();
    private final int[] open = new int[Kind.values().length];
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

    /// The exchanges with one prefiller.
    private static final class Prefiller {
        private final Map<Kind, Line> lines = new EnumMap<>(Kind.class);
        private boolean refusesToShare;

        Line line(Kind kind) {
            return lines.computeIfAbsent(kind, _ -> new Line());
        }

        Kind kind(Exchange exchange) {
            boolean sharing = exchange.carriage() == Carriage.SHARED && !refusesToShare;
            return Kind.of(exchange.turn(), sharing);
        }

        boolean idle() {
            return lines.values().stream().allMatch(Line::idle);
        }
    }

    /// The exchanges of one kind with one prefiller.
    private static final class Line {
        private final GrowSafeQueue<Exchange> waiting = new GrowSafeQueue<>();
        private int open;

        boolean idle() {
            return open == 0 && waiting.isEmpty();
        }
    }

    /// @param name of the channel, for failures
    /// @param requestRoom for requests of exchanges that are not over
    Turns(String name, ByteBudget requestRoom) {
        this.name = name;
        this.requestRoom = requestRoom;
    }

    /// What becomes of an exchange.
    sealed interface Verdict {
        // Made ahead: what was counted needs no memory to be said.

        Begin BEGIN = new Begin();
        Wait WAIT = new Wait();

        /// It may begin; [#ended] is due.
        record Begin() implements Verdict {}

        /// It waits, and [#ended] of another one returns it later.
        record Wait() implements Verdict {}

        /// Nothing happened.
        record Refused(Failure failure) implements Verdict {}
    }

    Verdict admit(Exchange exchange) {
        lock.lock();
        try {
            if (closed) {
                return new Verdict.Refused(closed());
            }
            if (!requestRoom.take(exchange.request().length)) {
                return new Verdict.Refused(notSent(exchange));
            }
            if (!admitted(exchange)) {
                return Verdict.BEGIN;
            }
            if (queued > MOST_QUEUED) {
                unqueue(exchange);
                return new Verdict.Refused(notSent(exchange));
            }
            return Verdict.WAIT;
        } finally {
            lock.unlock();
        }
    }

    /// As [#mustWait], for one that has room for its request. Under the lock.
    private boolean admitted(Exchange exchange) {
        boolean known = false;
        try {
            boolean wait = mustWait(exchange);
            known = true;
            return wait;
        } finally {
            if (!known) { // no memory
                exchanges.remove(exchange);
                requestRoom.give(exchange.request().length);
            }
        }
    }

    Failure closed() {
        return new Failure(ErrorCode.CLOSED, name + " is closed");
    }

    private Failure notSent(Exchange exchange) {
        return new Failure(
                ErrorCode.BACKPRESSURE,
                name + ": request to " + exchange.address() + " not sent, too many are open");
    }

    /// Gives it a turn or a place in the queue. Under the lock.
    private boolean mustWait(Exchange exchange) {
        var prefiller = prefillers.computeIfAbsent(exchange.address(), _ -> new Prefiller());
        var kind = prefiller.kind(exchange);
        var line = prefiller.line(kind);
        exchanges.put(exchange, kind);
        boolean wait = line.open >= kind.mostPerPrefiller || open[kind.ordinal()] >= kind.most;
        if (wait) {
            line.waiting.add(exchange);
            queued++;
        } else {
            count(line, kind, 1);
        }
        return wait;
    }

    /// It does not wait any more. Nothing happens where its turn has come.
    void leaveQueue(Exchange exchange) {
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

    /// Needs no memory.
    private void count(Line line, Kind kind, int change) {
        line.open += change;
        open[kind.ordinal()] += change;
    }

    /// Needs no memory.
    private @Nullable Kind forget(Exchange exchange) {
        var kind = exchanges.remove(exchange);
        if (kind != null) {
            requestRoom.give(exchange.request().length);
        }
        return kind;
    }

    /// Whether it is to be carried by a connection that others share.
    boolean isSharing(Exchange exchange) {
        lock.lock();
        try {
            var kind = exchanges.get(exchange);
            return kind != null && kind.sharing();
        } finally {
            lock.unlock();
        }
    }

    /// An exchange that had its turn has ended. Does nothing if that was already reported. Must not
    /// allocate.
    ///
    /// @return the exchange that may begin now, if any
    @Nullable Exchange ended(Exchange exchange) {
        lock.lock();
        try {
            var kind = forget(exchange);
            if (kind == null) {
                return null;
            }
            var prefiller = prefillers.get(exchange.address());
            if (prefiller != null) { // none goes while it has one open
                count(prefiller.line(kind), kind, -1);
            }
            return closed ? null : next(kind);
        } catch (OutOfMemoryError _) {
            return null; // those that wait go on with the next end, or with their limit
        } finally {
            lock.unlock();
        }
    }

    /// Of the prefiller with the fewest open ones, among those that have some waiting.
    private @Nullable Exchange next(Kind kind) {
        if (queued == 0) {
            return null;
        }
        Line fewest = null;
        for (var prefiller : prefillers.values()) {
            var line = prefiller.line(kind);
            if (!line.waiting.isEmpty()
                    && line.open < kind.mostPerPrefiller
                    && (fewest == null || line.open < fewest.open)) {
                fewest = line;
            }
        }
        if (fewest == null) {
            return null;
        }
        queued--;
        count(fewest, kind, 1);
        return fewest.waiting.remove();
    }

    /// @param beginning those whose turn it is
    /// @param waiting the others
    record Sorted(List<Exchange> beginning, List<Exchange> waiting) {}

    /// A prefiller does not share connections. Its exchanges begin again as those that have one for
    /// themselves, also those that wait.
    ///
    /// @param carried had their turn and are not over
    Sorted refusedToShare(String address, List<Exchange> carried) {
        var sorted = new Sorted(new ArrayList<>(), new ArrayList<>());
        lock.lock();
        try {
            var prefiller = prefillers.computeIfAbsent(address, _ -> new Prefiller());
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
                    (mustWait(exchange) ? sorted.waiting() : sorted.beginning()).add(exchange);
                }
            }
        } finally {
            lock.unlock();
        }
        return sorted;
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

    /// Forgets prefillers with which nothing goes on.
    ///
    /// @param connected whether there is a connection to an address; called under the lock
    void forgetIdle(Predicate<String> connected) {
        lock.lock();
        try {
            prefillers
                    .entrySet()
                    .removeIf(entry -> entry.getValue().idle() && !connected.test(entry.getKey()));
        } finally {
            lock.unlock();
        }
    }

    /// Refuses all from now on.
    ///
    /// @return those that are not over
    List<Exchange> close() {
        lock.lock();
        try {
            closed = true;
            prefillers
                    .values()
                    .forEach(each -> each.lines.values().forEach(line -> line.waiting.clear()));
            queued = 0;
            return List.copyOf(exchanges.keySet());
        } finally {
            lock.unlock();
        }
    }
}
