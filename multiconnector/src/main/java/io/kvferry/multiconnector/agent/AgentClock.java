// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.toolkit.bounded.HeapPause;

import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/// The thread that wakes agents after a while: one for all of them, which ends when it has had
/// nothing to do for some time.
///
/// The timers of CompletableFuture are not used. Their callbacks run on a thread that all timers of
/// the JVM share, and delayed executors on the common pool, which has one thread on two processors
/// and belongs to everybody.
final class AgentClock {
    private static final ScheduledThreadPoolExecutor CLOCK = clock();

    private AgentClock() {}

    private static ScheduledThreadPoolExecutor clock() {
        var clock =
                new ScheduledThreadPoolExecutor(
                        1, Thread.ofPlatform().daemon().name("kvferry-agent-clock").factory());
        clock.setKeepAliveTime(30, TimeUnit.SECONDS);
        clock.allowCoreThreadTimeOut(true);
        clock.setRemoveOnCancelPolicy(true);
        return clock;
    }

    /// Runs `body` after so many nanoseconds. Tried for some seconds where the heap is full.
    ///
    /// @param body must neither block nor throw
    /// @throws OutOfMemoryError when it could not be arranged
    static Future<?> after(long nanos, Runnable body) {
        for (int attempt = 1; ; attempt++) {
            try {
                CLOCK.prestartCoreThread(); // or a task is queued although the call throws
                return CLOCK.schedule(body, nanos, TimeUnit.NANOSECONDS);
            } catch (OutOfMemoryError e) {
                HeapPause.after(attempt, e);
            }
        }
    }
}
