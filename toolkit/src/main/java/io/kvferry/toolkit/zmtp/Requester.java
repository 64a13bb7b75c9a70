// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.net.HostNames;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/// Sends requests to one ROUTER and gets one answer per request. The calling thread writes the
/// request and reads the answer, which avoids a thread switch. A connection carries one request at
/// a time, is kept for reuse, and is closed when a request gets no answer.
///
/// Threading: any thread; [#ask] waits.
public final class Requester implements AutoCloseable {
    /// Requests under way; others wait for their turn.
    private static final int MOST_CONNECTIONS = 256;

    /// How long a connection is kept for the next request: shorter than firewalls forget one.
    private static final Duration REST = Duration.ofSeconds(30);

    private static final Duration LOOK = Duration.ofSeconds(5);

    /// A request up to this size fits into the socket, so that writing it never waits.
    private static final int SMALL = 8 << 10;

    private static final Duration SMALL_LIMIT = Duration.ofSeconds(30);

    /// Answers that are being received.
    private static final long MOST_BYTES = 256L << 20;

    private static final int PART_OF_HEAP = 8;

    private final String address;
    private final ZmtpHandshake.Terms terms;
    private final ScheduledThreadPoolExecutor clock;
    private final ByteBudget room = ByteBudget.ofHeap(MOST_BYTES, PART_OF_HEAP);

    /// What is asked is the memory of those who ask.
    private final ByteBudget unsentRoom = new ByteBudget(Long.MAX_VALUE);

    private final HostNames names;
    private final Semaphore turns;
    private final ReentrantLock lock = new ReentrantLock();
    private final Set<Line> lines = new HashSet<>();

    /// Those that rested last at the end.
    private final Deque<Line> resting = new ArrayDeque<>();

    private boolean closed;

    /// A connection.
    private final class Line {
        private final Dial dial = new Dial(address, terms, room, unsentRoom, clock, names);
        private @Nullable ZmtpConnection connection;
        private long restingSince;

        ZmtpConnection stands(Deadline deadline) throws IOException {
            var made = connection;
            if (made == null) {
                made = dial.open(deadline);
                connection = made;
            }
            return made;
        }

        /// Whether it stands after a rest, as far as can be seen.
        boolean stillStands() {
            var made = connection;
            return made != null && made.isQuiet();
        }
    }

    /// @param name of its thread
    /// @param address `tcp://host:port`
    /// @param keys empty in the clear
    public Requester(String name, String address, Optional<CurveKeys> keys) {
        this(name, address, keys, MOST_CONNECTIONS, HostNames.SYSTEM);
    }

    /// @param most requests that are under way at a time
    Requester(String name, String address, Optional<CurveKeys> keys, int most, HostNames names) {
        this.names = names;
        this.turns = new Semaphore(most);
        this.address = address;
        this.terms = new ZmtpHandshake.Terms(ZmtpHandshake.Role.DEALER, keys, false);
        this.clock =
                new ScheduledThreadPoolExecutor(
                        1, Thread.ofPlatform().name(name).daemon(true).factory());
        clock.setRemoveOnCancelPolicy(true);
        clock.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        var _ =
                clock.scheduleWithFixedDelay(
                        LastingLoop.repeated(() -> SideChannel.guard(name, this::endRested)),
                        LOOK.toNanos(),
                        LOOK.toNanos(),
                        TimeUnit.NANOSECONDS);
    }

    /// Sends a request and waits for its answer. An interrupt ends the wait; the peer may have got
    /// the request then, or not.
    ///
    /// @param connectLimit until a connection stands, where a new one is needed
    /// @param limit for all of it, from now on
    /// @throws KvFerryException [ErrorCode#TIMEOUT], [ErrorCode#PEER_LOST], [ErrorCode#PROTOCOL],
    ///   [ErrorCode#PEER_REFUSED], [ErrorCode#NO_MEMORY], [ErrorCode#BACKPRESSURE],
    ///   [ErrorCode#INVALID_REQUEST] for a request that is too large, [ErrorCode#CANCELLED] when
    ///   interrupted, [ErrorCode#CLOSED]
    public byte[] ask(byte[] request, Duration connectLimit, Duration limit) {
        var deadline = Deadline.in(limit);
        if (request.length > SideChannel.MAX_MESSAGE_BYTES) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    address + ": a request of " + request.length + " bytes is too large");
        }
        awaitTurn(deadline);
        try {
            var line = line();
            boolean done = false;
            try {
                byte[] answer = ask(line, request, connectLimit, deadline);
                done = true;
                return answer;
            } finally {
                if (!done || !rest(line)) {
                    end(List.of(line));
                }
            }
        } finally {
            turns.release();
        }
    }

    private void awaitTurn(Deadline deadline) {
        try {
            if (!turns.tryAcquire(deadline.remainingNanos(), TimeUnit.NANOSECONDS)) {
                throw new KvFerryException(
                        ErrorCode.TIMEOUT, address + ": too many requests are under way");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new KvFerryException(ErrorCode.CANCELLED, address + ": interrupted", e);
        }
    }

    private byte[] ask(Line line, byte[] request, Duration connectLimit, Deadline deadline) {
        String when = "does not take connections";
        try {
            var connection = line.stands(Deadline.in(connectLimit).earlier(deadline));
            when = "closed the connection";
            boolean small = request.length <= SMALL;
            if (!connection.sendHere(request, small ? SMALL_LIMIT : deadline.remaining())) {
                if (deadline.passed()) {
                    throw new SocketTimeoutException("the request is not read");
                }
                throw new IOException("the request could not be sent");
            }
            byte[] answer = connection.receive(deadline);
            connection.release();
            return answer;
        } catch (IOException | KvFerryException e) {
            throw failure(when, e);
        }
    }

    private KvFerryException failure(String when, Exception e) {
        if (Thread.currentThread().isInterrupted()) {
            return new KvFerryException(ErrorCode.CANCELLED, address + ": interrupted", e);
        }
        if (isClosed()) {
            return new KvFerryException(ErrorCode.CLOSED, address + ": closed", e);
        }
        var problem = Dial.Problem.of(when, e);
        if (problem.code() == ErrorCode.PEER_LOST) {
            endResting(); // they end with the same peer
        }
        return new KvFerryException(problem.code(), address + ": " + problem.text(), e);
    }

    private boolean isClosed() {
        lock.lock();
        try {
            return closed;
        } finally {
            lock.unlock();
        }
    }

    /// One that rests, or a new one.
    private Line line() {
        while (true) {
            Line line;
            boolean rested;
            lock.lock();
            try {
                if (closed) {
                    throw new KvFerryException(ErrorCode.CLOSED, address + ": closed");
                }
                line = resting.pollLast();
                rested = line != null;
                if (line == null) {
                    line = new Line();
                    lines.add(line);
                }
            } finally {
                lock.unlock();
            }
            if (!rested || line.stillStands()) {
                return line;
            }
            end(List.of(line));
        }
    }

    /// @return false when this is closed
    private boolean rest(Line line) {
        line.restingSince = System.nanoTime();
        lock.lock();
        try {
            return !closed && resting.add(line);
        } finally {
            lock.unlock();
        }
    }

    private void endRested() {
        var ended = new ArrayList<Line>();
        lock.lock();
        try {
            long now = System.nanoTime();
            while (!resting.isEmpty() && now - resting.getFirst().restingSince > REST.toNanos()) {
                ended.add(resting.removeFirst());
            }
        } finally {
            lock.unlock();
        }
        end(ended);
    }

    private void endResting() {
        List<Line> ended;
        lock.lock();
        try {
            ended = List.copyOf(resting);
            resting.clear();
        } finally {
            lock.unlock();
        }
        end(ended);
    }

    private void end(List<Line> ended) {
        lock.lock();
        try {
            ended.forEach(lines::remove);
        } finally {
            lock.unlock();
        }
        for (Line line : ended) {
            line.dial.close();
            var made = line.connection;
            if (made != null) {
                made.release();
            }
        }
    }

    /// Connections that are open or being opened.
    int connections() {
        lock.lock();
        try {
            return lines.size();
        } finally {
            lock.unlock();
        }
    }

    /// Ends what is being asked with `CLOSED`, and all connections.
    @Override
    public void close() {
        List<Line> busy;
        lock.lock();
        try {
            closed = true;
            busy = new ArrayList<>(lines);
            busy.removeAll(resting);
        } finally {
            lock.unlock();
        }
        endResting();
        busy.forEach(line -> line.dial.close()); // who asks ends the rest of it
        clock.shutdownNow();
    }
}
