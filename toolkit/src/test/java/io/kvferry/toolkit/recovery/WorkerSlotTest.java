// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.wire.Payload;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// A half that does not let itself be closed holds up nobody for longer than a limit, and is not
/// followed by another one before it is closed.
class WorkerSlotTest {
    private static final Duration MOMENT = Duration.ofMillis(5);
    private static final Duration LONG = Duration.ofSeconds(30);

    private final CountDownLatch gate = new CountDownLatch(1);
    private final CountDownLatch news = new CountDownLatch(1);

    private record Half(Runnable closing) implements WorkerHalf {
        @Override
        public StepReport report(WorkerStep step) {
            throw new IllegalStateException("not asked here");
        }

        @Override
        public void close() {
            closing.run();
        }
    }

    private void hang() {
        try {
            gate.await(1, TimeUnit.MINUTES);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static WorkerSlot<WorkerHalf> slot(Runnable closing, Duration limit) {
        return slot(closing, limit, limit);
    }

    private static WorkerSlot<WorkerHalf> slot(
            Runnable closing, Duration grace, Duration closeLimit) {
        return new WorkerSlot<>("half", new Half(closing), _ -> Payload.EMPTY, grace, closeLimit);
    }

    private static void await(BooleanSupplier done) {
        var limit = Deadline.in(LONG);
        boolean is = done.getAsBoolean();
        while (!is && !limit.passed()) {
            LockSupport.parkNanos(100_000);
            is = done.getAsBoolean();
        }
        assertThat(is).isTrue();
    }

    @Test
    void givesUpAHalfThatHangs() throws InterruptedException {
        var slot = slot(this::hang, MOMENT, LONG);
        slot.giveUp(news::countDown);
        assertThat(slot.half()).isNull();
        assertThat(slot.isClosing()).isTrue();
        assertThat(slot.isUnclosed()).isTrue();
        slot.giveUp(() -> {});
        assertThat(slot.isClosing()).as("of the same half").isTrue();

        slot.change(ConnectorChange.open(7), _ -> new Half(() -> {}), () -> {});
        await(() ->
                slot.takeOpened()
                        .filter(opened ->
                                opened.failure()
                                        .orElseThrow()
                                        .message()
                                        .contains("the half before it is not closed yet"))
                        .isPresent());
        slot.giveUp(() -> {});

        gate.countDown();
        assertThat(news.await(30, TimeUnit.SECONDS)).isTrue();
        await(() -> !slot.isUnclosed());
        slot.change(ConnectorChange.open(8), _ -> new Half(() -> {}), () -> {});
        await(() -> slot.takeOpened().filter(opened -> opened.failure().isEmpty()).isPresent());
        slot.change(ConnectorChange.USE, _ -> new Half(() -> {}), () -> {});
        assertThat(slot.half()).isNotNull();
        slot.close();
        assertThat(slot.isUnclosed()).isFalse();
    }

    @Test
    void aCloseOfTheSlotEndsWithTimeoutAndMayBeCalledAgain() {
        var slot = slot(this::hang, MOMENT);
        for (int i = 0; i < 2; i++) {
            assertThatThrownBy(slot::close)
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
            assertThat(slot.isUnclosed()).isTrue();
        }
        gate.countDown();
        await(() -> !slot.isClosing());
        slot.close();
        assertThat(slot.isUnclosed()).isFalse();
    }

    @Test
    void closesAHalfAgainThatSaysItHasNotFinished() {
        var calls = new AtomicInteger();
        var slot =
                slot(
                        () -> {
                            if (calls.incrementAndGet() < 3) {
                                throw new KvFerryException(ErrorCode.TIMEOUT, "a thread is left");
                            }
                        },
                        LONG);
        slot.giveUp(() -> {});
        assertThat(slot.isUnclosed()).isFalse();
        assertThat(calls).hasValue(3);
    }

    @Test
    void aHalfThatThrowsStaysUnclosed() {
        var slot =
                slot(
                        () -> {
                            throw new IllegalStateException("no");
                        },
                        LONG);
        assertThatThrownBy(() -> slot.giveUp(() -> {})).hasMessage("no");
        assertThat(slot.isClosing()).isFalse();
        assertThat(slot.isUnclosed()).isTrue();
    }

    @Test
    void closesUnderAnInterrupt() {
        var slot = slot(() -> LockSupport.parkNanos(20_000_000), LONG);
        Thread.currentThread().interrupt();
        try {
            slot.close();
        } finally {
            assertThat(Thread.interrupted()).isTrue();
        }
        assertThat(slot.isUnclosed()).isFalse();
    }
}
