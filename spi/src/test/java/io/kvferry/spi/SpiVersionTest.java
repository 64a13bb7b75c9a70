// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;

import java.time.Duration;

class SpiVersionTest {
    @Test
    void aRangeTakesLaterMinorsOfItsMajorOnly() {
        var range = SpiVersion.Range.from(1, 2);
        assertThat(range.accepts(new SpiVersion(1, 1))).isFalse();
        assertThat(range.accepts(new SpiVersion(1, 2))).isTrue();
        assertThat(range.accepts(new SpiVersion(1, 30))).isTrue();
        assertThat(range.accepts(new SpiVersion(2, 2))).isFalse();
        assertThat(range.accepts(new SpiVersion(0, 9))).isFalse();
        assertThat(range).hasToString(">=1.2 <2.0");
    }

    @Test
    void refusesNegativeNumbers() {
        assertThatThrownBy(() -> new SpiVersion(-1, 0))
                .isInstanceOf(IllegalArgumentException.class);
    }

    @Test
    void hugeDeadlinesDoNotOverflow() {
        assertThat(Deadline.in(Duration.ofSeconds(Long.MAX_VALUE)).passed()).isFalse();
        assertThat(Deadline.in(Duration.ZERO).passed()).isTrue();
        assertThat(Deadline.in(Duration.ofSeconds(-5)).remaining()).isEqualTo(Duration.ZERO);
        var soon = Deadline.in(Duration.ofSeconds(1));
        assertThat(Deadline.in(Duration.ofDays(1)).earlier(soon)).isEqualTo(soon);
    }
}
