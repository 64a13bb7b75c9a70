// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/// Takes the questions that come to an owner or a master and has them answered, by the thread that
/// reads the question where the connection has one for itself. Otherwise what moves bytes or takes
/// long has threads of its own, so that signs of life and lookups never wait behind it. A question
/// that finds too many waiting is refused at once.
///
/// Threading: any thread.
public final class StoreRequests implements SideChannel.Requests, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(StoreRequests.class);
    private static final int MOST_WAITING = 1024;

    /// Of questions that wait or are being answered.
    private static final long MOST_BYTES = 256L << 20;

    private static final int PART_OF_HEAP = 8;
    private static final Duration LONGEST = Duration.ofMinutes(5);

    private final Answers answers;
    private final ThreadPoolExecutor shortCalls;
    private final ThreadPoolExecutor longCalls;
    private final ByteBudget waiting = ByteBudget.ofHeap(MOST_BYTES, PART_OF_HEAP);

    /// For long ones that are answered at once.
    private final Semaphore moving;

    /// Shared while a question is answered at once; [#close] has it alone, for ever.
    private final ReentrantReadWriteLock answering = new ReentrantReadWriteLock();

    private volatile boolean closed;

    /// What a process knows.
    @FunctionalInterface
    public interface Answers {
        /// Answers a request, on a thread of [StoreRequests]. A [KvFerryException] is sent as
        /// INVALID_PARAMS, any other exception as INTERNAL.
        ///
        /// @param session 0 outside of a session
        /// @param in body of the request
        /// @param out receives the body of the answer; sent only with OK
        /// @param deadline after which the caller no longer waits
        StoreCode answer(
                Operation operation,
                long session,
                WireReader in,
                WireWriter out,
                Deadline deadline);
    }

    /// @param name of its threads
    public StoreRequests(String name, int shortThreads, int longThreads, Answers answers) {
        this.answers = answers;
        this.shortCalls = threads(name + "-ask", shortThreads);
        this.longCalls = threads(name + "-move", longThreads);
        this.moving = new Semaphore(longThreads);
    }

    private static ThreadPoolExecutor threads(String name, int count) {
        var threads =
                new ThreadPoolExecutor(
                        count,
                        count,
                        30,
                        TimeUnit.SECONDS,
                        new ArrayBlockingQueue<>(MOST_WAITING),
                        Thread.ofPlatform().daemon().name(name + "-", 0).factory());
        threads.allowCoreThreadTimeOut(true);
        return threads;
    }

    @Override
    public void onRequest(SideChannel.Asker asker, byte[] message) {
        try {
            WireReader in = StoreProtocol.open(message);
            Operation operation = Operation.of(in.u8());
            if (!answeredHere(asker, operation, in)
                    && !answerLater(asker, operation, in, message.length)) {
                asker.answer(bare(StoreCode.UNAVAILABLE_IN_CURRENT_STATUS));
            }
        } catch (KvFerryException e) {
            LOG.debug("a question of {} is refused: {}", asker.host(), e.toString());
            asker.answer(bare(StoreCode.INVALID_PARAMS));
        }
    }

    /// @return false when the thread is not the connection's own, or too many move bytes
    private boolean answeredHere(SideChannel.Asker asker, Operation operation, WireReader in) {
        boolean brief = operation.isBrief();
        if (!asker.hasThread() || !brief && !moving.tryAcquire()) {
            return false;
        }
        try {
            if (!answering.readLock().tryLock()) {
                return false;
            }
            try {
                if (closed) {
                    return false;
                }
                asker.answerHere(answer(operation, in));
                return true;
            } finally {
                answering.readLock().unlock();
            }
        } finally {
            if (!brief) {
                moving.release();
            }
        }
    }

    @Override
    public boolean answersHere() {
        return true;
    }

    /// @return false when too many are waiting, or too large ones
    private boolean answerLater(
            SideChannel.Asker asker, Operation operation, WireReader in, int bytes) {
        if (!waiting.take(bytes)) {
            return false;
        }
        boolean begun = false;
        try {
            var threads = operation.isLong() ? longCalls : shortCalls;
            threads.execute(() -> {
                try {
                    asker.answer(answer(operation, in));
                } finally {
                    waiting.give(bytes);
                }
            });
            begun = true;
        } catch (RejectedExecutionException e) {
            LOG.debug("{} is refused: {}", operation, e.toString());
        } finally {
            if (!begun) {
                waiting.give(bytes);
            }
        }
        return begun;
    }

    private static byte[] bare(StoreCode code) {
        return StoreProtocol.answer(code.number()).toByteArray();
    }

    /// Never throws: who asked waits.
    private byte[] answer(Operation operation, WireReader in) {
        try {
            long id = in.i64();
            var limit = Duration.ofMillis(Math.max(1, in.i32()));
            var deadline = Deadline.in(limit.compareTo(LONGEST) > 0 ? LONGEST : limit);
            WireWriter out = StoreProtocol.answer(0);
            StoreCode code = answers.answer(operation, id, in, out, deadline);
            return code == StoreCode.OK ? out.toByteArray() : bare(code);
        } catch (KvFerryException e) {
            LOG.debug("{} is refused: {}", operation, e.toString());
            return bare(StoreCode.INVALID_PARAMS);
        } catch (RuntimeException | Error e) {
            LOG.warn("{} failed", operation, e);
            return bare(StoreCode.INTERNAL);
        }
    }

    /// Has something done on the threads of what takes long; not at all when too much waits there.
    void later(Runnable work) {
        try {
            longCalls.execute(work);
        } catch (RejectedExecutionException e) {
            LOG.debug("not now: {}", e.toString());
        }
    }

    /// Takes no more, and waits for what is being answered, 15 s at most.
    @Override
    public void close() {
        closed = true;
        shortCalls.shutdown();
        longCalls.shutdown();
        try {
            shortCalls.awaitTermination(5, TimeUnit.SECONDS);
            longCalls.awaitTermination(5, TimeUnit.SECONDS);
            if (!answering.writeLock().tryLock(5, TimeUnit.SECONDS)) {
                LOG.warn("a question is still being answered");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
