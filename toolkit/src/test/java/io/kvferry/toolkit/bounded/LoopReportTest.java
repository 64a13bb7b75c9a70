// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;
import org.slf4j.Logger;

import java.lang.reflect.Proxy;
import java.util.concurrent.atomic.AtomicInteger;

/// Loops go on where there is no memory for a message.
class LoopReportTest {
    private final AtomicInteger calls = new AtomicInteger();
    private final Logger failing =
            (Logger)
                    Proxy.newProxyInstance(
                            Logger.class.getClassLoader(),
                            new Class<?>[] {Logger.class},
                            (_, _, _) -> {
                                calls.incrementAndGet();
                                throw new OutOfMemoryError("no memory, says the test");
                            });

    @Test
    void whatLoggingThrowsEndsThere() {
        LoopReport.warn(failing, "{} failed", "it", new IllegalStateException());
        LoopReport.error(failing, "{} failed", "it", new IllegalStateException());
        assertThat(calls).hasValue(2);
    }

    /// Work that is repeated ends for good when it throws.
    @Test
    void aFailureThatCannotBeDescribedDoesNotEndWhatIsRepeated() {
        SideChannel.guard(
                "test",
                () -> {
                    throw new IllegalStateException() {
                        @Override
                        public String getMessage() {
                            throw new OutOfMemoryError("no memory, says the test");
                        }
                    };
                });
        assertThat(calls).as("logged elsewhere").hasValue(0);
    }
}
