// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.wire.Payload;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;

/// A connector that cannot be opened is not tried again without a pause.
class ConnectorRecoveryPauseTest {
    private static final class Refusing implements ConnectorRecovery.SchedulerSide {
        @Override
        public void gaveUp(String by, Failure defect) {}

        @Override
        public void closingHangs(String ranks) {}

        @Override
        public void disable() {}

        @Override
        public void closed() {}

        @Override
        public long open() {
            throw new IllegalStateException("not now");
        }

        @Override
        public void use(List<Payload> handshakes) {}

        @Override
        public void onAgain(Failure reason) {}

        @Override
        public void discard() {}
    }

    @Test
    void growsFromTenMillisecondsWhenNoneIsAskedFor() {
        var recovery =
                new ConnectorRecovery(
                        "refusing", new Refusing(), 1, Duration.ZERO, Duration.ofSeconds(1));
        long before = System.nanoTime();
        recovery.off("a test", new Failure(ErrorCode.INTERNAL, "broken"));
        recovery.executed(List.of());
        long first = recovery.untilDue(before);
        assertThat(first).isGreaterThanOrEqualTo(Duration.ofMillis(10).toNanos());

        before = System.nanoTime();
        recovery.begin(before + first); // opens in vain
        recovery.executed(List.of());
        assertThat(recovery.untilDue(before))
                .isGreaterThanOrEqualTo(Duration.ofMillis(20).toNanos());
    }
}
