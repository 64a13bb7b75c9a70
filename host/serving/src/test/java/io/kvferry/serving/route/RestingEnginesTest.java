// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

class RestingEnginesTest {
    private final AtomicLong now = new AtomicLong();
    private final RestingEngines engines = new RestingEngines(now::get);

    private void pass(int seconds) {
        now.addAndGet(Duration.ofSeconds(seconds).toNanos());
    }

    @Test
    void restLongerWithEachFailureAndAreTriedByOneRequest() {
        assertThat(engines.admits("e")).isTrue();
        engines.failed("e");
        assertThat(engines.admits("e")).isFalse();
        assertThat(engines.admits("other")).isTrue();
        pass(5);
        assertThat(engines.admits("e")).as("a trial").isTrue();
        assertThat(engines.admits("e")).as("while it is under way").isFalse();
        engines.failed("e");
        pass(5);
        assertThat(engines.admits("e")).isFalse();
        pass(5);
        assertThat(engines.admits("e")).isTrue();
        engines.worked("e");
        assertThat(engines.admits("e")).isTrue();
        assertThat(engines.admits("e")).isTrue();
    }

    @Test
    void restForMinutesAtMost() {
        for (int i = 0; i < 100; i++) {
            engines.failed("e");
            pass(5 * 64);
            assertThat(engines.admits("e")).isTrue();
        }
        engines.failed("e");
        pass(5 * 64 - 1);
        assertThat(engines.admits("e")).isFalse();
        pass(1);
        assertThat(engines.admits("e")).isTrue();
    }

    /// One event, though each of them tells it.
    @Test
    void requestsThatWereUnderWayTogetherCountOnce() {
        for (int i = 0; i < 100; i++) {
            engines.failed("e");
        }
        pass(5);
        assertThat(engines.admits("e")).as("after the shortest rest").isTrue();
        assertThat(engines.admits("e")).isFalse();
    }

    @Test
    void thoseThatHaveGoneAreForgotten() {
        engines.failed("e");
        engines.keepOnly(List.of("f"));
        assertThat(engines.admits("e")).isTrue();
    }
}
