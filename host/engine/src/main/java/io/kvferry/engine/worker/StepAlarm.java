// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.locks.LockSupport;

/// Wakes the scheduler thread when a half has a reason for a step.
///
/// Threading: [#ring] from any thread; the rest on the scheduler thread.
public final class StepAlarm {
    private volatile boolean rung;
    private volatile @Nullable Thread sleeper;

    public void ring() {
        rung = true;
        LockSupport.unpark(sleeper);
    }

    /// The calling thread is the one to wake from now on.
    public void wakesThisThread() {
        sleeper = Thread.currentThread();
    }

    /// Before a step: what rang until now is in its reports.
    public void reset() {
        rung = false;
    }

    /// Whether it rang since [#reset]. The wake-up itself may have been spent on a wait within the
    /// step.
    public boolean rung() {
        return rung;
    }
}
