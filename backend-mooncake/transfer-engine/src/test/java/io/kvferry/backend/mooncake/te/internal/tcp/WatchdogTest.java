// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

class WatchdogTest {
    @Test
    void outlivesWhatItsChecksThrow() throws InterruptedException {
        try (var watchdog = new Watchdog("test")) {
            var thrown = new CountDownLatch(3);
            watchdog.repeat(() -> {
                thrown.countDown();
                throw new OutOfMemoryError("thrown by the test");
            });
            assertThat(thrown.await(20, TimeUnit.SECONDS)).as("ticks after an Error").isTrue();
            var later = new CountDownLatch(1);
            watchdog.repeat(() -> {
                later.countDown();
                return false;
            });
            assertThat(later.await(20, TimeUnit.SECONDS)).isTrue();
        }
    }
}
