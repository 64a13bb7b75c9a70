// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.Deadline;

/// The right to read some blocks. Scheduler thread only.
public interface BlockLease extends AutoCloseable {
    TransferId id();

    /// When the engine takes the blocks back: what was asked for, or earlier where the engine
    /// bounds leases.
    Deadline deadline();

    /// Moves the deadline, as far as the engine grants it; false when the lease has ended already.
    boolean renew(Deadline deadline);

    /// Gives the blocks back. Idempotent; a no-op after expiry.
    @Override
    void close();
}
