// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

/// How a worker half says that it has something to report, so that an engine with nothing to
/// compute need not step again and again to find out. A service of the host
/// ([io.kvferry.spi.HostServices#find]); a host that does not have it steps by the clock.
public interface StepSignal {
    /// A completion waits for the next [WorkerConnector#report]. Called after it can be taken
    /// there, from any thread, any number of times; never blocks for long and never throws. A step
    /// that was about to begin may answer several calls.
    void reportDue();
}
