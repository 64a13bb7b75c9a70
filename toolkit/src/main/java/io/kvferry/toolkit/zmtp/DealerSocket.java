// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.net.Cancellation;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// A DEALER with one connection to a ROUTER, for protocols that are no exchanges of
/// [SideChannel#exchange]: messages without an answer, and an identity that the ROUTER goes by. It
/// does not connect anew: who loses it makes another.
///
/// Threading: any thread.
public final class DealerSocket implements AutoCloseable {
    /// A peer that sends more than this without being read loses the connection.
    private static final int MOST_UNREAD = 16;

    private static final long MOST_BYTES = 1 << 20;

    private final String address;
    private final Dial dial;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final Deque<byte[]> unread = new ArrayDeque<>();
    private @Nullable ZmtpConnection connection;
    private @Nullable Failure lost;
    private @Nullable Runnable whenLost;
    private @Nullable Runnable whenMessage;

    private DealerSocket(String address, Dial dial) {
        this.address = address;
        this.dial = dial;
    }

    static DealerSocket connect(
            String name,
            String address,
            ZmtpHandshake.Terms terms,
            Deadline deadline,
            ScheduledExecutorService clock,
            Cancellation connecting) {
        var dial =
                new Dial(
                        address,
                        terms,
                        new ByteBudget(MOST_BYTES),
                        new ByteBudget(MOST_BYTES),
                        clock);
        var socket = new DealerSocket(address, dial);
        try {
            connecting.begin(dial);
            var made = dial.open(deadline);
            socket.connection = made;
            var _ = Thread.ofVirtual().name(name + "-dealer").start(() -> socket.read(made));
            return socket;
        } catch (IOException | RuntimeException | Error e) {
            dial.close();
            connecting.check();
            throw socket.exception(socket.failure("not connected", e));
        } finally {
            connecting.end(dial);
        }
    }

    private void read(ZmtpConnection made) {
        try {
            while (take(made.receive())) {
                made.release();
            }
        } catch (IOException | RuntimeException | Error e) {
            lose(failure("connection lost", e));
        } finally {
            made.close();
            made.release();
        }
    }

    private boolean take(byte[] message) {
        boolean taken;
        Runnable listener = null;
        lock.lock();
        try {
            taken = lost == null && unread.size() < MOST_UNREAD;
            if (taken) {
                unread.add(message);
                listener = whenMessage;
                changed.signalAll();
            }
        } finally {
            lock.unlock();
        }
        if (listener != null) {
            SideChannel.guard(address, listener);
        }
        if (taken) {
            return true;
        }
        lose(new Failure(ErrorCode.PROTOCOL, address + " sends what nobody asked for"));
        return false;
    }

    private Failure failure(String when, Throwable cause) {
        var problem = Dial.Problem.of(when, cause);
        return new Failure(problem.code(), address + ": " + problem.text());
    }

    private KvFerryException exception(Failure failure) {
        return new KvFerryException(failure.code(), failure.message());
    }

    private void lose(Failure why) {
        Runnable listener;
        lock.lock();
        try {
            if (lost != null) {
                return;
            }
            lost = why;
            listener = whenLost;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        if (listener != null) {
            SideChannel.guard(address, listener);
        }
    }

    /// @param listener called once, when the connection is lost or closed; at once where it is
    public void onLost(Runnable listener) {
        lock.lock();
        try {
            if (lost == null) {
                whenLost = listener;
                return;
            }
        } finally {
            lock.unlock();
        }
        listener.run();
    }

    /// @param listener called after each message from now on, on the thread that reads; must not
    ///   block
    public void onMessage(Runnable listener) {
        lock.lock();
        try {
            whenMessage = listener;
        } finally {
            lock.unlock();
        }
    }

    /// Whether the connection stands, as far as is known.
    public boolean isOpen() {
        lock.lock();
        try {
            return lost == null;
        } finally {
            lock.unlock();
        }
    }

    /// Queues a message.
    ///
    /// @throws KvFerryException [ErrorCode#PEER_LOST] or what the connection was lost by
    public void send(byte[] message) {
        var made = connection;
        if (made == null || !isOpen() || !made.send(message)) {
            lose(new Failure(ErrorCode.PEER_LOST, address + ": connection lost"));
            throw exception(why());
        }
    }

    /// The next message.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when none came in time, else what the
    ///   connection was lost by
    public byte[] receive(Deadline deadline) {
        lock.lock();
        try {
            while (unread.isEmpty()) {
                if (lost != null) {
                    throw exception(lost);
                }
                if (deadline.passed()) {
                    throw new KvFerryException(
                            ErrorCode.TIMEOUT, address + ": no message within the time limit");
                }
                var _ = changed.awaitNanos(deadline.remainingNanos());
            }
            return unread.remove();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new KvFerryException(ErrorCode.CANCELLED, address + ": interrupted", e);
        } finally {
            lock.unlock();
        }
    }

    private Failure why() {
        lock.lock();
        try {
            return lost != null ? lost : new Failure(ErrorCode.CLOSED, address + ": closed");
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void close() {
        lose(new Failure(ErrorCode.CLOSED, address + ": closed"));
        dial.close();
    }
}
