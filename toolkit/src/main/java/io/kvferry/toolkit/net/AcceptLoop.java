// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.Uninterrupted;
import io.kvferry.toolkit.recovery.OpeningParts;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.SocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Accepts connections on one listening socket until it is closed, and survives failures.
///
/// When the process is out of file descriptors, memory or threads, single connections are lost but
/// not the port: the loop backs off and retries. A listening socket closed by something else (an
/// interrupt does that) is bound again to the same address. If the accepting thread dies for lack
/// of memory, it is replaced.
///
/// Threading: one platform thread accepts and calls the handler; one watch thread shared by all
/// loops supervises it. Other methods may be called from any thread.
public final class AcceptLoop implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(AcceptLoop.class);
    private static final int BACKLOG = 512;
    private static final long FIRST_BACK_OFF = TimeUnit.MILLISECONDS.toNanos(5);
    private static final long LAST_BACK_OFF = TimeUnit.MILLISECONDS.toNanos(500);

    /// After this time without being able to accept, the port counts as out of order.
    private static final Duration TROUBLE_AFTER = Duration.ofSeconds(5);

    /// A port counts as listening again after waiting this long for a connection without an error.
    private static final long LISTENS_AFTER = TimeUnit.SECONDS.toNanos(1);

    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(5);

    /// Number of supervision checks within [#TROUBLE_AFTER].
    private static final int LOOKS = 5;

    /// Between replacements of the thread.
    private static final long LAST_PAUSE = TimeUnit.SECONDS.toNanos(30);

    private final SocketAddress address;
    private final Duration troubleAfter;
    private final Handler handler;
    private final String name;
    private final ThreadFactory threads;
    private volatile Runnable endOfLooks = () -> {};
    private volatile Thread thread;
    private volatile ServerSocketChannel listener;
    private volatile boolean closed;
    private volatile long failingSince;
    private volatile long waitingSince;

    /// Whether the handler caused the last failure; only an accepted connection clears this.
    private volatile boolean lastFailedInHandler;

    private volatile String lastFailure = "";
    private long backOff = FIRST_BACK_OFF;

    /// Until the next replacement of the thread, and when it may be; of the watch.
    private long pause;

    private long notBefore = System.nanoTime();

    /// Takes accepted connections.
    @FunctionalInterface
    public interface Handler {
        /// Runs on the loop's thread and must not wait for the peer. If it throws, the connection
        /// is closed.
        void accepted(SocketChannel connection) throws IOException;
    }

    private AcceptLoop(
            String name,
            ServerSocketChannel listener,
            Handler handler,
            Duration troubleAfter,
            ThreadFactory threads)
            throws IOException {
        this.name = name;
        this.threads = threads;
        this.troubleAfter = troubleAfter;
        this.listener = listener;
        this.address = listener.getLocalAddress();
        this.handler = handler;
        this.thread = threads.newThread(this::run);
        this.pause = troubleAfter.toNanos() / LOOKS;
    }

    private void begin() {
        thread.start();
        boolean watched = false;
        try {
            endOfLooks = AcceptWatch.OF_THIS_JVM.every(pause, this::lookAfterThread);
            watched = true;
        } finally {
            closed |= !watched;
        }
    }

    /// Starts accepting.
    ///
    /// @param listener bound and blocking; the loop closes it, also when it does not start
    /// @throws KvFerryException [ErrorCode#NO_MEMORY] when no thread can be had
    public static AcceptLoop start(String name, ServerSocketChannel listener, Handler handler) {
        return start(
                name,
                listener,
                handler,
                TROUBLE_AFTER,
                Thread.ofPlatform().name(name).daemon().factory());
    }

    /// @param troubleAfter how long nothing may be accepted before [#trouble] says so
    /// @param threads makes the one that accepts
    static AcceptLoop start(
            String name,
            ServerSocketChannel listener,
            Handler handler,
            Duration troubleAfter,
            ThreadFactory threads) {
        try (var parts = new OpeningParts()) {
            parts.add(listener, AcceptLoop::closeQuietly);
            var loop = new AcceptLoop(name, listener, handler, troubleAfter, threads);
            loop.begin();
            parts.keep();
            return loop;
        } catch (IOException e) {
            throw new IllegalArgumentException(name + ": the listening socket is closed", e);
        } catch (OutOfMemoryError e) {
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY, "no thread that accepts for " + name + ": " + e, e);
        }
    }

    private void run() {
        while (!closed) {
            try {
                pass(accept());
                recovered();
            } catch (Throwable t) { // whatever it was, the next connection is to be served
                survive(t);
            }
        }
    }

    /// Replaces a thread that has ended, with longer and longer pauses between.
    private void lookAfterThread() {
        try {
            long now = System.nanoTime();
            if (closed || thread.isAlive() || now - notBefore < 0) {
                return;
            }
            notBefore = now + pause;
            pause = Math.min(2 * pause, LAST_PAUSE);
            var next = threads.newThread(this::run);
            next.start();
            thread = next;
            LOG.warn("the thread of {} on {} had ended, and was replaced", name, address);
        } catch (Throwable t) { // most likely there is no memory for a thread: the next look
            lastFailure = "no thread: " + t.getClass().getName();
        }
    }

    private SocketChannel accept() throws IOException {
        ServerSocketChannel open = listener();
        waitingSince = System.nanoTime() | 1;
        try {
            return open.accept();
        } finally {
            waitingSince = 0;
        }
    }

    private void pass(SocketChannel connection) throws IOException {
        boolean taken = false;
        try {
            handler.accepted(connection);
            taken = true;
        } finally {
            lastFailedInHandler = !taken;
            if (!taken) {
                connection.close();
            }
        }
    }

    private ServerSocketChannel listener() throws IOException {
        if (!listener.isOpen() && !closed) {
            ServerSocketChannel again = ServerSocketChannel.open();
            try {
                again.bind(address, BACKLOG);
            } catch (IOException e) {
                again.close();
                throw e;
            }
            listener = again;
            if (closed) {
                again.close();
            }
        }
        return listener;
    }

    private void recovered() {
        if (failingSince != 0) {
            failingSince = 0;
            backOff = FIRST_BACK_OFF;
        }
    }

    private void survive(Throwable t) {
        if (closed) {
            return;
        }
        try {
            boolean first = failingSince == 0;
            lastFailure = t.toString();
            if (first) {
                failingSince = System.nanoTime() | 1;
                LOG.warn("{} on {} failed, and is tried again", name, address, t);
            }
        } catch (Throwable again) { // no memory for the message either
            lastFailure = "out of memory";
        }
        if (Thread.interrupted()) { // nobody ends the loop by that
            lastFailure = "interrupted";
        }
        LockSupport.parkNanos(backOff);
        backOff = Math.min(backOff * 2, LAST_BACK_OFF);
    }

    /// Why the port does not accept connections, if it has not been able to for a while.
    public Optional<String> trouble() {
        long since = failingSince;
        if (!closed && !thread.isAlive()) {
            return Optional.of(name + " has ended");
        }
        return !closed
                        && since != 0
                        && System.nanoTime() - since > troubleAfter.toNanos()
                        && !listensAgain()
                ? Optional.of(name + " accepts no connections: " + lastFailure)
                : Optional.empty();
    }

    /// Also true without an accepted connection, because clients may avoid a port reported as out
    /// of order.
    private boolean listensAgain() {
        long waiting = waitingSince;
        return !lastFailedInHandler && waiting != 0 && System.nanoTime() - waiting > LISTENS_AFTER;
    }

    @Override
    public void close() {
        closed = true;
        endOfLooks.run();
        closeQuietly(listener);
        LockSupport.unpark(thread);
        // What the handler is given must not reach it after this.
        if (!Uninterrupted.join(thread, CLOSE_LIMIT)) {
            LOG.warn("{} did not end within {}", name, CLOSE_LIMIT);
        }
    }

    private static void closeQuietly(ServerSocketChannel listener) {
        try {
            listener.close();
        } catch (IOException e) {
            LOG.warn("closing {} failed: {}", listener, e.toString());
        }
    }
}
