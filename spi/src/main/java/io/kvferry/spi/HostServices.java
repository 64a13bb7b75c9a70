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

    /// Says that the engine has a reason to step now: a worker half has something for the next
    /// report, or a scheduler half would answer a lookup differently. An engine with nothing to
    /// compute then need not step again and again to find out. Called after what it announces can
    /// be taken, from any thread, any number of times; never blocks and never throws. One step may
    /// answer several calls. A host that cannot be woken steps by the clock.
    void wake();

    /// These services with other events and another [#wake]: how an engine puts itself behind the
    /// services that it was given. A host of a type of its own answers one of that type.
    default HostServices with(EventSink events, Runnable engine) {
        return of(events, transfers(), stagingPool(), engine);
    }
}
