// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import org.slf4j.Logger;

/// Log messages of threads that must go on after a failure. What failed may have been for want of
/// memory, of which a message takes some as well: what logging throws ends here.
public final class LoopReport {
    private LoopReport() {}

    /// @param arguments of the message; a failure last
    public static void warn(Logger log, String message, Object... arguments) {
        try {
            log.warn(message, arguments);
        } catch (RuntimeException | Error _) {
            Thread.onSpinWait();
        }
    }

    /// @param arguments of the message; a failure last
    public static void error(Logger log, String message, Object... arguments) {
        try {
            log.error(message, arguments);
        } catch (RuntimeException | Error _) {
            Thread.onSpinWait();
        }
    }
}
