// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;

import java.util.Arrays;

/// Log messages of threads that must go on after a failure. What failed may have been for lack of
/// memory, of which a message takes some as well: what logging throws ends here. Arguments come one
/// by one, because the array of a variable number of them would be made by the caller.
public enum LoopReport {
    WARN,
    ERROR;

    /// Has this class loaded while there is memory for it.
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
