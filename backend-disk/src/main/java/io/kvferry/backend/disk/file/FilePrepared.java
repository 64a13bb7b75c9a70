// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.file;

import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;

import java.util.List;
import java.util.Optional;

/// Descriptors and, for each, the registration that covers it.
record FilePrepared(Object owner, DescriptorList descriptors, List<Registered> covers)
        implements Prepared {
    @Override
    public Optional<PeerId> peer() {
        return Optional.empty();
    }

    /// Nothing to free: a transfer keeps what it needs by reference.
    @Override
    public void close() {}
}
