// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.TransferBackends;

/// The services as they were given.
record PlainHost(
        EventSink events, TransferBackends transfers, StagingPool stagingPool, Runnable waker)
        implements HostServices {
    @Override
    public void wake() {
        waker.run();
    }
}
