// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.TransferBackends;

/// Services of the host for the plugins that it opens. A plugin shares resources with others only
/// through these services, never through statics: plugins of the plugin folder have class loaders
/// of their own, and only the types of the SPI are common to all.
///
/// Every service outlives every plugin that it was given to, and no plugin closes one.
///
/// Threading: any thread.
public interface HostServices {
    /// A host that offers nothing: tests, and static queries.
    HostServices NONE = of(EventSink.NONE, TransferBackends.NONE, StagingPool.NONE, () -> {});

    /// A host with these services.
    ///
    /// @param wake see [#wake]
    static HostServices of(
            EventSink events, TransferBackends transfers, StagingPool staging, Runnable wake) {
        record Services(
                EventSink events,
                TransferBackends transfers,
                StagingPool stagingPool,
                Runnable waker)
                implements HostServices {
            @Override
            public void wake() {
                waker.run();
            }
        }
        return new Services(events, transfers, staging, wake);
    }

    /// Where decisions, deliveries and incidents go.
    EventSink events();

    /// Opens transfer backends by name, several as one.
    TransferBackends transfers();

    /// The staging memory of this host: one pool, whichever class loader a plugin has.
    StagingPool stagingPool();

    /// Asks the engine to run a step: a worker half has something to report, or a scheduler half
    /// would now answer a lookup differently. Without it, an idle engine would have to poll. Call
    /// it after the result can be collected, from any thread, any number of times. Never blocks,
    /// never throws. One step may serve several calls. A host without wake-up support steps on a
    /// timer.
    void wake();

    /// Returns these services with another event sink and wake-up; an engine uses it to put its own
    /// in place. A host with its own implementation class returns that class.
    default HostServices with(EventSink events, Runnable engine) {
        return of(events, transfers(), stagingPool(), engine);
    }
}
