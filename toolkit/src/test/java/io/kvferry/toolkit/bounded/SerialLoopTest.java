// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

class SerialLoopTest {
    /// From the end of the close on, what the work uses may be gone.
    @Test
    void theEndWaitsForWhatRunsEvenWhereItIsInterrupted() throws Exception {
        var loop = new SerialLoop("test");
        var closer = Thread.currentThread();
        var begun = new CountDownLatch(1);
        var awaited = new AtomicBoolean();
        var limit = Deadline.in(Duration.ofSeconds(4));
        loop.post(() -> {
            begun.countDown();
            while (closer.getState() != Thread.State.TIMED_WAITING && !limit.passed()) {
                Thread.onSpinWait();
            }
            awaited.set(true);
        });
        begun.await();
        closer.interrupt();
        loop.close();
        boolean interrupted = Thread.interrupted();
        assertThat(awaited).isTrue();
        assertThat(interrupted).isTrue();
    }

    /// When queueing the end of a transfer failed, its blocks stayed leased forever.
    @Test
    void ownWorkIsQueuedWhenThereIsMemoryAgain() throws Exception {
        var refusals = new AtomicInteger(3);
        var queue =
                new LinkedBlockingQueue<Runnable>() {
                    @Override
                    public boolean offer(Runnable work) {
                        if (refusals.getAndDecrement() > 0) {
                            throw new OutOfMemoryError("no memory, says the test");
                        }
                        return super.offer(work);
                    }
                };
        try (var loop = new SerialLoop(Thread.ofPlatform().daemon(true).factory(), queue)) {
            var done = new CountDownLatch(1);
            loop.post(done::countDown);
            assertThat(done.await(30, TimeUnit.SECONDS)).isTrue();
            refusals.set(Integer.MAX_VALUE);
            assertThatThrownBy(() -> loop.post(done::countDown))
                    .isInstanceOf(OutOfMemoryError.class);
            assertThat(refusals).hasValue(Integer.MAX_VALUE - HeapPause.MOST_ATTEMPTS);
        }
    }

    /// A loop that got its thread with the first work lost that work.
    @Test
    void aLoopWithoutAThreadIsNotOpened() {
        assertThatThrownBy(() ->
                        new SerialLoop(_ -> {
                            throw new OutOfMemoryError("no thread, says the test");
                        }))
                .isInstanceOf(OutOfMemoryError.class);
    }

    @Test
    void noThreadIsNeededLater() throws Exception {
        var made = new AtomicInteger();
        ThreadFactory threads =
                work -> {
                    if (made.incrementAndGet() > 1) {
                        throw new OutOfMemoryError("no thread, says the test");
                    }
                    return Thread.ofPlatform().daemon(true).unstarted(work);
                };
        try (var loop = new SerialLoop(threads)) {
            assertThat(made).hasValue(1);
            loop.post(() -> {
                throw new OutOfMemoryError("says the test");
            });
            var done = new CountDownLatch(1);
            assertThat(loop.offer("peer", SerialLoop.MAX_OFFERED_BYTES, done::countDown)).isTrue();
            assertThat(done.await(30, TimeUnit.SECONDS)).isTrue();
        }
    }
}
