// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

class CancellationTest {
    private static final int WAITERS = 3;
    private static final int ROUNDS = 500;

    private final Cancellation cancellation = new Cancellation();
    private final AtomicInteger closed = new AtomicInteger();

    @Test
    void endsWhatIsWaitedForAndNothingElse() {
        cancellation.begin(closed::incrementAndGet);
        Closeable over = () -> closed.addAndGet(100);
        cancellation.begin(over);
        cancellation.end(over);
        cancellation.begin(() -> {
            closed.addAndGet(10);
            throw new IOException("by the test");
        });
        assertThatCode(cancellation::check).doesNotThrowAnyException();
        cancellation.cancel(ErrorCode.CLOSED);
        assertThat(closed).hasValue(11);
    }

    @Test
    void refusesWhatComesLateForTheFirstReason() {
        cancellation.cancel(ErrorCode.CLOSED);
        cancellation.cancel(ErrorCode.CANCELLED);
        assertThatThrownBy(() -> cancellation.begin(closed::incrementAndGet))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.CLOSED));
        cancellation.cancel(ErrorCode.CLOSED);
        assertThat(closed).hasValue(0);
    }

    /// In any order: a waiting thread is aborted, an ended wait is not closed any more, and nothing
    /// starts afterwards.
    @Test
    void noWaitOutlivesACancellation() throws Exception {
        try (var threads = Executors.newFixedThreadPool(WAITERS + 1)) {
            for (int round = 0; round < ROUNDS; round++) {
                var one = new Cancellation();
                var start = new CyclicBarrier(WAITERS + 1);
                var waiters = new ArrayList<Future<Integer>>();
                for (int i = 0; i < WAITERS; i++) {
                    var random = new Random(31L * round + i);
                    waiters.add(threads.submit(() -> beginUntilCancelled(one, start, random)));
                }
                int spins = new Random(round).nextInt(2_000);
                var cancel =
                        threads.submit(() -> {
                            start.await();
                            for (int i = 0; i < spins; i++) {
                                Thread.onSpinWait();
                            }
                            one.cancel(ErrorCode.CLOSED);
                            return true;
                        });
                for (var waiter : waiters) {
                    assertThat(waiter.get(120, TimeUnit.SECONDS))
                            .as("closed behind their end, round " + round)
                            .isZero();
                }
                assertThat(cancel.get(60, TimeUnit.SECONDS)).isTrue();
            }
        }
    }

    /// @return waits that were closed after they had ended
    private static int beginUntilCancelled(Cancellation one, CyclicBarrier start, Random random)
            throws Exception {
        var closings = new ArrayList<AtomicInteger>();
        var atEnd = new ArrayList<Integer>();
        start.await();
        while (true) {
            var count = new AtomicInteger();
            var ended = new CountDownLatch(1);
            Closeable wait =
                    () -> {
                        count.incrementAndGet();
                        ended.countDown();
                    };
            try {
                one.begin(wait);
            } catch (KvFerryException e) {
                break;
            }
            if (random.nextInt(8) == 0) { // until it is cancelled
                assertThat(ended.await(60, TimeUnit.SECONDS)).as("the wait ends").isTrue();
            }
            one.end(wait);
            closings.add(count);
            atEnd.add(count.get());
        }
        one.cancel(ErrorCode.CANCELLED); // closes nothing: all of this thread is over
        int late = 0;
        for (int i = 0; i < closings.size(); i++) {
            late += closings.get(i).get() - atEnd.get(i);
        }
        return late;
    }
}
