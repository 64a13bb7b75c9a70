// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;

class StepAlarmTest {
    private static final int RINGS = 10_000;
    private static final Duration SOON = Duration.ofSeconds(60);

    /// Each ring waits until the one before it was taken, so one that is lost leaves both waiting.
    @Test
    void losesNoRingThatComesWhileAnotherThreadTakes() {
        var alarm = new StepAlarm();
        var taken = new AtomicInteger();
        var limit = Deadline.in(SOON);
        var ringer =
                CompletableFuture.runAsync(
                        () -> {
                            for (int i = 0; i < RINGS; i++) {
                                alarm.ring();
                                while (taken.get() <= i && !limit.passed()) {
                                    Thread.onSpinWait();
                                }
                            }
                        },
                        work -> Thread.ofPlatform().start(work));
        while (taken.get() < RINGS && !limit.passed()) {
            if (alarm.take()) {
                taken.incrementAndGet();
            }
        }
        ringer.join();
        assertThat(taken).hasValue(RINGS);
        assertThat(alarm.rung()).isFalse();
    }
}
