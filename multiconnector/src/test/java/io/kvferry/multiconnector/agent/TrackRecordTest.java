// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.transfer.Operation;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;

class TrackRecordTest {
    private final AtomicLong now = new AtomicLong(Long.MAX_VALUE - 5); // the clock may wrap
    private final TrackRecord record = new TrackRecord(now::get);

    @Test
    void aPairThatFailedIsIllForAWhileThatDoublesUpToHalfAMinute() {
        long expected = Duration.ofMillis(100).toNanos();
        for (int failure = 0; failure < 12; failure++) {
            record.failed("A", "p");
            assertThat(record.healthy("A", "p")).isFalse();
            assertThat(record.healthy("A", "q")).as("another peer").isTrue();
            assertThat(record.healthy("B", "p")).as("another backend").isTrue();
            now.addAndGet(expected - 1);
            assertThat(record.healthy("A", "p")).isFalse();
            now.addAndGet(1);
            assertThat(record.healthy("A", "p")).isTrue();
            expected = Math.min(25_600_000_000L, expected * 2);
        }
        record.failed("A", "p");
        record.succeeded("A", "p");
        assertThat(record.healthy("A", "p")).isTrue();
    }

    @Test
    void followsWhatWasMeasuredPerSizeOperationAndPeer() {
        record.measured("A", Operation.READ, "p", 1000, 100, 300);
        assertThat(record.correction("A", Operation.READ, "p", 600)).hasValue(3);
        for (int i = 0; i < 100; i++) {
            record.measured("A", Operation.READ, "p", 1000, 100, 50);
        }
        assertThat(record.correction("A", Operation.READ, "p", 1000).orElseThrow())
                .isBetween(0.49, 0.51);
        assertThat(record.correction("A", Operation.READ, "p", 2000)).isEmpty();
        assertThat(record.correction("A", Operation.WRITE, "p", 1000)).isEmpty();
        assertThat(record.correction("A", Operation.READ, "q", 1000)).isEmpty();

        record.forget("p");
        assertThat(record.correction("A", Operation.READ, "p", 1000)).isEmpty();
    }

    @Test
    void oneWildMeasurementIsCut() {
        record.measured("A", Operation.READ, "p", 1, 1, Long.MAX_VALUE / 2);
        assertThat(record.correction("A", Operation.READ, "p", 1)).hasValue(1000);
    }
}
