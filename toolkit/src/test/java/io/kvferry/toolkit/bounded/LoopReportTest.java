// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;
import org.slf4j.Logger;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/// Loops go on where there is no memory for a message.
class LoopReportTest {
    private final List<String> calls = new ArrayList<>();
    private final Logger recording = logger(() -> {});
    private final Logger failing =
            logger(() -> {
                throw new OutOfMemoryError("no memory, says the test");
            });

    private Logger logger(Runnable then) {
        return (Logger)
                Proxy.newProxyInstance(
                        Logger.class.getClassLoader(),
                        new Class<?>[] {Logger.class},
                        (_, method, arguments) -> {
                            calls.add(method.getName() + Arrays.deepToString(arguments));
                            then.run();
                            return null;
                        });
    }

    @Test
    void whatLoggingThrowsEndsThere() {
        LoopReport.WARN.log(failing, "{} failed", "it", new IllegalStateException());
        LoopReport.ERROR.log(failing, "{} failed", "it", new IllegalStateException());
        assertThat(calls).hasSize(2);
    }

    /// A logger takes the failure for one only where it comes last.
    @Test
    void theLoggerGetsTheArgumentsAndNoMore() {
        var failure = new IllegalStateException("f");
        LoopReport.WARN.log(recording, "failed", failure);
        LoopReport.WARN.log(recording, "{} failed", 1, failure);
        LoopReport.ERROR.log(recording, "{} of {} failed", 1, 2, failure);
        assertThat(calls)
                .containsExactly(
                        "warn[failed, [" + failure + "]]",
                        "warn[{} failed, [1, " + failure + "]]",
                        "error[{} of {} failed, [1, 2, " + failure + "]]");
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
        assertThat(calls).as("logged elsewhere").isEmpty();
    }
}
