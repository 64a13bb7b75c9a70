// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.memory.FullHeap;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

class AcceptWatchTest {
    private static final long PAUSE = TimeUnit.MILLISECONDS.toNanos(1);
    private static final Duration SOON = Duration.ofSeconds(30);

    @TempDir Path folder;

    private static boolean goesOn(AtomicInteger looks) {
        int seen = looks.get();
        var limit = Deadline.in(SOON);
        while (looks.get() < seen + 3 && !limit.passed()) {
            LockSupport.parkNanos(PAUSE);
        }
        return looks.get() >= seen + 3;
    }

    @Test
    void looksForAllThatAskedUntilTheyAskNoMore() throws Exception {
        var first = new AtomicInteger();
        var second = new AtomicInteger();
        var endFirst = AcceptWatch.OF_THIS_JVM.every(PAUSE, first::incrementAndGet);
        var endSecond = AcceptWatch.OF_THIS_JVM.every(PAUSE, second::incrementAndGet);
        assertThat(goesOn(first)).isTrue();
        assertThat(goesOn(second)).isTrue();
        endFirst.run();
        endFirst.run();
        assertThat(goesOn(second)).as("the other one").isTrue();
        endSecond.run();
        var third = new AtomicInteger();
        var endThird = AcceptWatch.OF_THIS_JVM.every(PAUSE, third::incrementAndGet);
        assertThat(goesOn(third)).as("when nobody was left in between").isTrue();
        int seen = first.get();
        assertThat(goesOn(third)).isTrue();
        assertThat(first.get()).as("looks after the end").isEqualTo(seen);
        endThird.run();
    }

    @Test
    void goesOnAfterALookThatThrowsOrInterruptsItsThread() throws Exception {
        var done = new CountDownLatch(4);
        var end =
                AcceptWatch.OF_THIS_JVM.every(
                        PAUSE,
                        () -> {
                            done.countDown();
                            if (done.getCount() % 2 == 0) {
                                Thread.currentThread().interrupt();
                            } else {
                                throw new OutOfMemoryError("thrown by the test");
                            }
                        });
        assertThat(done.await(SOON.toSeconds(), TimeUnit.SECONDS)).isTrue();
        end.run();
    }

    @Test
    void goesOnAfterTheHeapWasFullForAWhile() throws Exception {
        assertThat(FullHeap.run(folder, 32, Duration.ofSeconds(120), Child.class))
                .contains("it goes on");
    }

    static final class Child {
        private Child() {}

        public static void main(String[] args) {
            var looks = new AtomicInteger();
            var end = AcceptWatch.OF_THIS_JVM.every(PAUSE, looks::incrementAndGet);
            FullHeap.fill(Deadline.in(Duration.ofSeconds(2)));
            System.out.println(goesOn(looks) ? "it goes on" : "it has ended");
            end.run();
        }
    }
}
