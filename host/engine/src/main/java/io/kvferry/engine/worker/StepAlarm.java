// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/// Wakes the scheduler thread when a half has a reason for a step.
///
/// Threading: [#ring] from any thread; the rest on the scheduler thread.
public final class StepAlarm {
    private final AtomicBoolean rung = new AtomicBoolean();
    private volatile @Nullable Thread sleeper;

    public void ring() {
        rung.set(true);
        LockSupport.unpark(sleeper);
    }

    /// The calling thread is the one to wake from now on.
    public void wakesThisThread() {
        sleeper = Thread.currentThread();
    }

    /// Before a step: what rang until now is in its reports. Atomic, so that no ring is lost: the
    /// wake-up alone does not say that a half asked for a step.
    ///
    /// @return whether it rang since the last call
    public boolean take() {
        return rung.getAndSet(false);
    }

    /// Whether it rang since [#take]. The wake-up itself may have been spent on a wait within the
    /// step.
    public boolean rung() {
        return rung.get();
    }
}
