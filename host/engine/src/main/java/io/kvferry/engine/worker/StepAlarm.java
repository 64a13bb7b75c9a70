// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.kv.StepSignal;
import io.kvferry.spi.observe.EventSink;

import org.jspecify.annotations.Nullable;

import java.util.Optional;
import java.util.concurrent.locks.LockSupport;

/// Wakes the scheduler thread when a worker half has something to report.
///
/// Threading: [#reportDue] from any thread; the rest on the scheduler thread.
public final class StepAlarm implements StepSignal {
    private volatile boolean rung;
    private volatile @Nullable Thread sleeper;

    @Override
    public void reportDue() {
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

    /// The services of `host`, and this one.
    public HostServices with(HostServices host) {
        return offering(host, this);
    }

    static HostServices offering(HostServices host, StepSignal signal) {
        return new HostServices() {
            @Override
            public EventSink events() {
                return host.events();
            }

            @Override
            public <T> Optional<T> find(Class<T> service) {
                return service == StepSignal.class
                        ? Optional.of(service.cast(signal))
                        : host.find(service);
            }
        };
    }
}
