// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.internal.memory.Slice;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

class SliceRunnerTest {
    /// A caller that reuses the memory after the end must not meet a helper that still copies.
    @ParameterizedTest
    @ValueSource(ints = {0, 50, 1_000_000})
    void awaitsTheHelpersThatCameWhereThereIsNoThreadForMore(int spinMicros) {
        var runner = new SliceRunner(Slice.cut(Ranges.of(0, 0, 1 << 20), 4), spinMicros);
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
                },
                () -> {});
        assertThat(left).isTrue();
        assertThat(asked).hasValue(2);
    }

    @Test
    void anInterruptStopsWhatHelpersWaitIn() throws Exception {
        var runner = new SliceRunner(Slice.cut(Ranges.of(0, 0, 1 << 20), 2), 50);
        var came = new CountDownLatch(1);
        var stopped = new CountDownLatch(1);
        var ended = new CompletableFuture<Throwable>();
        var caller = new AtomicReference<Thread>();
        caller.set(
                Thread.ofPlatform()
                        .daemon()
                        .unstarted(() ->
                                ended.complete(
                                        catchThrowable(() ->
                                                runner.run(
                                                        2,
                                                        helper -> Thread.ofVirtual().start(helper),
                                                        () -> {
                                                            if (Thread.currentThread()
                                                                    != caller.get()) {
                                                                came.countDown();
                                                                await(stopped);
                                                            } else {
                                                                awaitAwake(came);
                                                            }
                                                        },
                                                        () -> {
                                                            runner.giveUp(ErrorCode.CANCELLED);
                                                            stopped.countDown();
                                                        })))));
        caller.get().start();
        assertThat(came.await(30, TimeUnit.SECONDS)).isTrue();
        while (caller.get().getState() != Thread.State.WAITING) {
            Thread.yield(); // not before it waits for its helper
        }
        caller.get().interrupt();
        assertThat(ended.get(60, TimeUnit.SECONDS))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.CANCELLED));
    }

    /// As where the heap is full.
    @Test
    void aPartThatFailsWithoutADescriptionDoesNotPassForCopied() {
        var runner = new SliceRunner(Slice.cut(Ranges.of(0, 0, 1 << 20), 2), 50);
        var caller = Thread.currentThread();
        var came = new CountDownLatch(1);
        Throwable end =
                catchThrowable(() ->
                        runner.run(
                                2,
                                helper -> Thread.ofVirtual().start(helper),
                                () -> {
                                    if (Thread.currentThread() == caller) {
                                        await(came);
                                    } else {
                                        came.countDown();
                                        throw new Undescribed();
                                    }
                                },
                                () -> {}));
        assertThat(end)
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INTERNAL));
    }

    private static final class Undescribed extends Error {
        private static final long serialVersionUID = 1;

        @Override
        public String toString() {
            throw new OutOfMemoryError("by the test");
        }
    }

    private static void awaitAwake(CountDownLatch latch) {
        while (latch.getCount() > 0) {
            Thread.yield();
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }
}
