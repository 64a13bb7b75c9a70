// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Pauses between attempts at what must be done although the heap is full: the end of a transfer,
/// which is reported only once. An attempt follows every 10 ms, for 5 s altogether.
///
/// ```java
/// for (int attempt = 1; ; attempt++) {
///     try {
///         tell(load); // may be called again where it threw
///         return;
///     } catch (OutOfMemoryError e) {
///         HeapPause.after(attempt, e);
///     }
/// }
/// ```
///
/// A loop, not a method that takes the work: the work would be an object, for which there may be no
/// memory either.
///
/// Threading: any thread.
public final class HeapPause {
    static final int MOST_ATTEMPTS = 500;

    private static final long PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(10);

    private HeapPause() {}

    /// Loads this class while memory is available. Else the first pause loads it, and throws where
    /// there is no memory for that.
    public static void load() {}

    /// Waits until the next attempt is due. Makes no object. An interrupted thread does not wait,
    /// so its attempts follow each other at once.
    ///
    /// @param attempt the one that failed, from 1
    /// @param lack why it failed
    /// @throws OutOfMemoryError `lack`, when that was the last attempt
    public static void after(int attempt, OutOfMemoryError lack) {
        if (isLast(attempt)) {
            throw lack;
        }
        LockSupport.parkNanos(PAUSE_NANOS);
    }

    /// Whether no attempt follows this one.
    public static boolean isLast(int attempt) {
        return attempt >= MOST_ATTEMPTS;
    }
}
