// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.internal.memory.Slice;

import org.junit.jupiter.api.Test;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

class SliceRunnerTest {
    /// Whoever reuses the memory after the end must not meet a helper that still copies.
    @Test
    void awaitsTheHelpersThatCameWhereThereIsNoThreadForMore() {
        var runner = new SliceRunner(Slice.cut(Ranges.of(0, 0, 1 << 20), 4));
        var caller = Thread.currentThread();
        var came = new CountDownLatch(1);
        var goOn = new CountDownLatch(1);
        var left = new AtomicBoolean();
        var asked = new AtomicInteger();
        runner.run(
                4,
                helper -> {
                    if (asked.incrementAndGet() > 1) {
                        throw new OutOfMemoryError("unable to create native thread (by the test)");
                    }
                    Thread.ofVirtual().start(helper);
                },
                () -> {
                    if (Thread.currentThread() == caller) {
                        await(came);
                        goOn.countDown();
                    } else {
                        came.countDown();
                        await(goOn);
                        left.set(true);
                    }
                });
        assertThat(left).isTrue();
        assertThat(asked).hasValue(2);
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }
}
