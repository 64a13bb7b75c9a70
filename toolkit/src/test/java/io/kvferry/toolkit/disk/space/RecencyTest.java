// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.atomic.AtomicLong;

class RecencyTest {
    private static final long DAY = Duration.ofDays(1).toMillis();

    private final AtomicLong clock = new AtomicLong(100 * DAY);
    private final AtomicLong elapsed = new AtomicLong(Duration.ofDays(-3).toNanos());
    private final Recency recency =
            new Recency(60_000, () -> Instant.ofEpochMilli(clock.get()), elapsed::get);

    private long passes(long millis) {
        clock.addAndGet(millis);
        elapsed.addAndGet(Duration.ofMillis(millis).toNanos());
        return recency.nowMillis();
    }

    @Test
    void goesOnAtTheSamePaceWhenTheClockIsSetBackAndFollowsItWhenItIsSetForward() {
        assertThat(recency.nowMillis()).isEqualTo(100 * DAY);
        assertThat(passes(5)).isEqualTo(100 * DAY + 5);
        clock.addAndGet(-2 * DAY);
        assertThat(recency.nowMillis()).isEqualTo(100 * DAY + 5);
        assertThat(passes(7)).isEqualTo(100 * DAY + 12);
        clock.addAndGet(10 * DAY);
        assertThat(passes(1)).isEqualTo(108 * DAY + 13);
        clock.addAndGet(-DAY);
        assertThat(passes(1)).isEqualTo(108 * DAY + 14);
    }
}
