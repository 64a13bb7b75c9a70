// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.LoopReport;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;

/// One request to a prefiller and its answers. It ends once: by its last answer, by the loss of its
/// connection, or by its time limit.
///
/// Threading: any thread; its callbacks never run at the same time.
public final class Exchange implements SideChannel.Call {
    private static final Logger LOG = LoggerFactory.getLogger(Exchange.class);

    private final String address;
    private final byte[] request;
    private final Duration connectLimit;
    private final Duration answerLimit;
    private final SideChannel.Turn turn;
    private final SideChannel.Carriage carriage;
    private final SideChannel.Answers answers;
    private final ScheduledExecutorService clock;
    private final AtomicReference<Departure> departure = new AtomicReference<>(Departure.NOT_YET);
    private final ReentrantLock lock = new ReentrantLock();
    private Runnable afterwards = () -> {};
    private @Nullable ScheduledFuture<?> timer;
    private boolean begun;
    private boolean cancellable;
    private boolean unwanted;
    private boolean over;

    /// What became of the request.
    private enum Departure {
        NOT_YET,
        /// It is handed to a connection now, or was.
        SENT,
        /// It stays here.
        NEVER
    }

    public Exchange(
            String address,
            byte[] request,
            Duration connectLimit,
            Duration answerLimit,
            SideChannel.Turn turn,
            SideChannel.Carriage carriage,
            SideChannel.Answers answers,
            ScheduledExecutorService clock) {
        this.address = address;
        this.request = request;
        this.connectLimit = connectLimit;
        this.answerLimit = answerLimit;
        this.turn = turn;
        this.carriage = carriage;
        this.answers = answers;
        this.clock = clock;
    }

    String address() {
        return address;
    }

    byte[] request() {
        return request;
    }

    SideChannel.Turn turn() {
        return turn;
    }

    SideChannel.Carriage carriage() {
        return carriage;
    }

    Duration connectLimit() {
        return connectLimit;
    }

    /// Called when the exchange is queued. Does nothing if its turn has already come.
    ///
    /// @param end runs after the failure was reported, if the exchange is lost
    void queued(Runnable end) {
        lock.lock();
        try {
            if (!begun && !over) {
                afterwards = end;
                limit(answerLimit, "no turn within " + answerLimit.toMillis() + " ms");
            }
        } finally {
            lock.unlock();
        }
    }

    /// Its connection could not be used; the exchange will get another turn.
    void again() {
        lock.lock();
        try {
            begun = false;
            afterwards = () -> {};
        } finally {
            lock.unlock();
        }
    }

    /// Called when the exchange's turn comes.
    ///
    /// @param end runs after the failure was reported, if the exchange is lost
    /// @return false when the exchange has already ended; `end` never runs then
    boolean begun(Runnable end) {
        lock.lock();
        try {
            begun = true;
            if (over) {
                return false;
            }
            afterwards = end;
            limit(
                    connectLimit,
                    "no answer within the time to connect, " + connectLimit.toMillis() + " ms");
            return true;
        } finally {
            lock.unlock();
        }
    }

    /// Called just before the request is handed to a connection.
    ///
    /// @return false when it must not be sent because the exchange has ended and was reported as
    ///   not sent
    boolean leaves() {
        departure.compareAndSet(Departure.NOT_YET, Departure.SENT);
        boolean sent = departure.get() == Departure.SENT;
        if (sent) {
            SideChannel.guard(address, answers::onLeaving);
        }
        return sent;
    }

    /// The connection stands.
    void connected() {
        limit(answerLimit, "no answer within " + answerLimit.toMillis() + " ms");
    }

    private void limit(Duration limit, String text) {
        lock.lock();
        try {
            cancelTimer();
            if (!over) {
                timer =
                        clock.schedule(
                                () -> lose(ErrorCode.TIMEOUT, text),
                                limit.toNanos(),
                                TimeUnit.NANOSECONDS);
            }
        } catch (RejectedExecutionException e) {
            LOG.debug("the channel is being closed: {}", e.toString());
        } finally {
            lock.unlock();
        }
    }

    private void cancelTimer() {
        var running = timer;
        if (running != null) {
            running.cancel(false);
            timer = null;
        }
    }

    /// An answer came.
    ///
    /// @return how it goes on; [SideChannel.Reading#GIVE_UP] when it is over already
    SideChannel.Reading answered(byte[] message) {
        lock.lock();
        try {
            if (over) {
                return SideChannel.Reading.GIVE_UP;
            }
            var next = read(message);
            over = next != SideChannel.Reading.MORE;
            if (over) {
                cancelTimer();
            } else {
                connected();
            }
            return next;
        } finally {
            lock.unlock();
        }
    }

    private SideChannel.Reading read(byte[] message) {
        try {
            return answers.onAnswer(message);
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "a handler of answers failed", e);
            tell(Failure.of(e), false);
            return SideChannel.Reading.GIVE_UP;
        }
    }

    void lose(ErrorCode code, String text) {
        lose(failure(code, text));
    }

    private Failure failure(ErrorCode code, String text) {
        try {
            return new Failure(code, "prefiller at " + address + ": " + text);
        } catch (OutOfMemoryError e) {
            return Failure.of(e);
        }
    }

    /// Ends the exchange without further answers. Does nothing if it has ended. Must not allocate.
    void lose(Failure failure) {
        lose(failure, false);
    }

    /// @param onlyUnsent whether nothing is to happen where the request has left
    private void lose(Failure failure, boolean onlyUnsent) {
        Runnable end;
        lock.lock();
        try {
            if (over) {
                return;
            }
            boolean unsent = stays();
            if (onlyUnsent && !unsent) {
                return;
            }
            over = true;
            cancelTimer();
            end = afterwards;
            tell(failure, unsent);
        } finally {
            lock.unlock();
        }
        SideChannel.guard(address, end);
    }

    private void tell(Failure failure, boolean unsent) {
        try {
            if (unsent) {
                answers.onNotSent(failure);
            } else {
                answers.onLost(failure);
            }
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "{}: callback failed", address, e);
        }
    }

    /// Keeps the request from being sent. Under the lock: whoever finds out then finds it over.
    ///
    /// @return false when it has left
    private boolean stays() {
        return departure.compareAndSet(Departure.NOT_YET, Departure.NEVER)
                || departure.get() == Departure.NEVER;
    }

    /// Its request is on a connection where it can be given up for itself.
    void cancellable() {
        lock.lock();
        try {
            cancellable = true;
            if (!unwanted) {
                return;
            }
        } finally {
            lock.unlock();
        }
        cancel();
    }

    /// The answers are no longer wanted. An unsent request is still sent, so that the peer can
    /// release what it holds for it.
    @Override
    public void cancel() {
        lock.lock();
        try {
            unwanted = true;
            if (!cancellable) {
                return;
            }
        } finally {
            lock.unlock();
        }
        lose(notWanted());
    }

    private Failure notWanted() {
        return failure(ErrorCode.CANCELLED, "not wanted any more");
    }

    @Override
    public void withdraw() {
        lose(notWanted(), true);
    }

    boolean isOver() {
        lock.lock();
        try {
            return over;
        } finally {
            lock.unlock();
        }
    }
}
