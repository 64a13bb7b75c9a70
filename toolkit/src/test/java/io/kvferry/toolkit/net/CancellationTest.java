// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.io.Closeable;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicInteger;

class CancellationTest {
    private final Cancellation cancellation = new Cancellation();
    private final AtomicInteger closed = new AtomicInteger();

    @Test
    void endsWhatIsWaitedForAndNothingElse() {
        cancellation.begin(closed::incrementAndGet);
        Closeable over = () -> closed.addAndGet(100);
        cancellation.begin(over);
        cancellation.end(over);
        cancellation.begin(() -> {
            closed.addAndGet(10);
            throw new IOException("by the test");
        });
        assertThatCode(cancellation::check).doesNotThrowAnyException();
        cancellation.cancel(ErrorCode.CLOSED);
        assertThat(closed).hasValue(11);
    }

    @Test
    void refusesWhatComesLateForTheFirstReason() {
        cancellation.cancel(ErrorCode.CLOSED);
        cancellation.cancel(ErrorCode.CANCELLED);
        assertThatThrownBy(() -> cancellation.begin(closed::incrementAndGet))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.CLOSED));
        cancellation.cancel(ErrorCode.CLOSED);
        assertThat(closed).hasValue(0);
    }
}
