// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.event.Level;

import java.util.Arrays;

/// Log messages of threads that must go on after a failure. What failed may have been for want of
/// memory, of which a message takes some as well: what logging throws ends here. Arguments come one
/// by one, because the array of a variable number of them would be made by the caller.
public final class LoopReport {
    private LoopReport() {}

    /// Has this class loaded while there is memory for it.
    public static void load() {}

    public static void warn(Logger log, String message, Throwable failure) {
        log(log, Level.WARN, message, 1, failure, null, null);
    }

    /// @param last a failure, or an argument of the message
    public static void warn(Logger log, String message, Object first, Object last) {
        log(log, Level.WARN, message, 2, first, last, null);
    }

    /// @param last a failure, or an argument of the message
    public static void warn(Logger log, String message, Object first, Object second, Object last) {
        log(log, Level.WARN, message, 3, first, second, last);
    }

    public static void error(Logger log, String message, Throwable failure) {
        log(log, Level.ERROR, message, 1, failure, null, null);
    }

    /// @param last a failure, or an argument of the message
    public static void error(Logger log, String message, Object first, Object last) {
        log(log, Level.ERROR, message, 2, first, last, null);
    }

    /// @param last a failure, or an argument of the message
    public static void error(Logger log, String message, Object first, Object second, Object last) {
        log(log, Level.ERROR, message, 3, first, second, last);
    }

    private static void log(
            Logger log,
            Level level,
            String message,
            int count,
            Object first,
            @Nullable Object second,
            @Nullable Object third) {
        try {
            var arguments = Arrays.copyOf(new @Nullable Object[] {first, second, third}, count);
            if (level == Level.ERROR) {
                log.error(message, arguments);
            } else {
                log.warn(message, arguments);
            }
        } catch (RuntimeException | Error _) {
            Thread.onSpinWait();
        }
    }
}
