// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

class FanOutTest {
    /// Owners that say nothing: each call waits for one of them.
    @Test
    void anInterruptReachesAllCallsAndNoLaterOne() throws Exception {
        var waiting = new CountDownLatch(3);
        var never = new CountDownLatch(1);
        var stopped = new AtomicInteger();
        Runnable call =
                () -> {
                    waiting.countDown();
                    try {
                        never.await();
                    } catch (InterruptedException _) {
                        stopped.incrementAndGet();
                        Thread.currentThread().interrupt();
                    }
                };
        try (var fanOut = new FanOut()) {
            var interrupted = new CompletableFuture<Boolean>();
            var asking =
                    Thread.ofPlatform()
                            .daemon()
                            .start(() -> {
                                fanOut.run(List.of(call, call, call));
                                interrupted.complete(Thread.interrupted());
                            });
            assertThat(waiting.await(30, TimeUnit.SECONDS)).isTrue();
            asking.interrupt();
            assertThat(interrupted.get(60, TimeUnit.SECONDS)).isTrue();
            assertThat(stopped).hasValue(3);

            var left = new AtomicInteger();
            Runnable next =
                    () -> {
                        if (Thread.currentThread().isInterrupted()) {
                            left.incrementAndGet();
                        }
                    };
            fanOut.run(List.of(next, next, next));
            assertThat(left).as("calls that were interrupted for another one").hasValue(0);
        } finally {
            never.countDown();
        }
    }
}
