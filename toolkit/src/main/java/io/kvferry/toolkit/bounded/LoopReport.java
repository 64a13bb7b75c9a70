// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;

import java.util.Arrays;

/// Logging for threads that must continue after a failure. The failure may be an OutOfMemoryError,
/// and logging allocates too, so exceptions thrown by logging are swallowed. Arguments are separate
/// parameters because a varargs array would be allocated by the caller.
public enum LoopReport {
    WARN,
    ERROR;

    /// Loads this class while memory is available.
    public static void load() {}

    public void log(Logger log, String message, Throwable failure) {
        log(log, message, 1, failure, null, null);
    }

    /// @param last a failure, or an argument of the message
    public void log(Logger log, String message, Object first, Object last) {
        log(log, message, 2, first, last, null);
    }

    /// @param last a failure, or an argument of the message
    public void log(Logger log, String message, Object first, Object second, Object last) {
        log(log, message, 3, first, second, last);
    }

    private void log(
            Logger log,
            String message,
            int count,
            Object first,
            @Nullable Object second,
            @Nullable Object third) {
        try {
            var arguments = Arrays.copyOf(new @Nullable Object[] {first, second, third}, count);
            if (this == ERROR) {
                log.error(message, arguments);
            } else {
                log.warn(message, arguments);
            }
        } catch (RuntimeException | Error _) {
            Thread.onSpinWait();
        }
    }
}
