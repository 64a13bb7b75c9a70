// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.ClosingAside;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.util.concurrent.locks.ReentrantLock;

/// A DEALER connection to one prefiller. It carries one exchange at a time; an unexpected message
/// from the peer closes it.
///
/// Threading: [#run] on a virtual thread of its own, which reads until the end; the rest from any
/// thread.
final class DealerConnection {
    private final String address;
    private final Dial dial;
    private final Listener listener;
    private final ReentrantLock lock = new ReentrantLock();
    private @Nullable Exchange current;
    private @Nullable ZmtpConnection connection;
    private boolean closed;
    private volatile long restingSince;

    /// What the owner of the connections hears.
    interface Listener {
        /// The last answer of an exchange came; the connection is free.
        void onFree(DealerConnection connection, Exchange done);

        /// The connection is over.
        ///
        /// @param carried the exchange that ends with it; null for none
        void onEnd(DealerConnection connection, @Nullable Exchange carried);
    }

    DealerConnection(Exchange first, Dial dial, Listener listener) {
        this.address = first.address();
        this.current = first;
        this.dial = dial;
        this.listener = listener;
    }

    String address() {
        return address;
    }

    long restingSince() {
        return restingSince;
    }

    /// Connects, sends the first request, and reads.
    void run() {
        var when = "does not take connections";
        var problem = new Dial.Problem(ErrorCode.PEER_LOST, when);
        try {
            var first = currentExchange();
            if (first == null) {
                return;
            }
            var made = dial.open(Deadline.in(first.connectLimit()));
            when = "closed the connection";
            problem = new Dial.Problem(ErrorCode.PEER_LOST, when);
            stands(made);
            first.connected();
            if (!first.leaves()) {
                return;
            }
            made.send(first.request());
            read(made);
        } catch (IOException | RuntimeException | Error e) {
            problem = Dial.Problem.of(when, e);
        } finally {
            end(problem.code(), problem.text());
        }
    }

    private void stands(ZmtpConnection made) {
        lock.lock();
        try {
            connection = made;
        } finally {
            lock.unlock();
        }
    }

    private void read(ZmtpConnection made) throws IOException {
        while (true) {
            var message = made.receive();
            var exchange = currentExchange();
            if (exchange == null) {
                throw new KvFerryException(ErrorCode.PROTOCOL, "an answer out of turn");
            }
            var next = exchange.answered(message);
            made.release();
            if (next == SideChannel.Reading.GIVE_UP) {
                return;
            }
            if (next == SideChannel.Reading.DONE) {
                rest();
                listener.onFree(this, exchange);
            }
        }
    }

    private void rest() {
        restingSince = System.nanoTime();
        lock.lock();
        try {
            current = null;
        } finally {
            lock.unlock();
        }
    }

    /// Begins the next exchange on a connection that rests.
    ///
    /// @return false when it has ended meanwhile
    boolean begin(Exchange exchange) {
        lock.lock();
        try {
            var made = connection;
            if (closed || made == null || made.isClosed() || current != null) {
                return false;
            }
            if (!exchange.leaves()) { // it is over, and its end closes this connection
                current = exchange;
                return true;
            }
            if (!made.send(exchange.request())) {
                return false;
            }
            current = exchange;
            exchange.connected();
            return true;
        } finally {
            lock.unlock();
        }
    }

    private @Nullable Exchange currentExchange() {
        lock.lock();
        try {
            return current;
        } finally {
            lock.unlock();
        }
    }

    /// It is over, and so is the exchange that it carries. Needs no memory.
    void end(ErrorCode code, String problem) {
        Exchange exchange;
        ZmtpConnection made;
        lock.lock();
        try {
            closed = true; // nothing begins here from now on
            exchange = current;
            made = connection;
        } finally {
            lock.unlock();
        }
        if (made != null) {
            made.release();
        }
        closeNow();
        if (exchange != null) {
            exchange.lose(code, problem);
        }
        listener.onEnd(this, exchange);
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
