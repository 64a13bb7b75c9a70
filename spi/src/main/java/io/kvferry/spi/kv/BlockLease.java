// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.Deadline;

/// The right to read some blocks. Scheduler thread only.
public interface BlockLease extends AutoCloseable {
    TransferId id();

    /// Moves the deadline; false when the lease has ended already.
    boolean renew(Deadline deadline);

    /// Gives the blocks back. Idempotent; a no-op after expiry.
    @Override
    void close();
}
