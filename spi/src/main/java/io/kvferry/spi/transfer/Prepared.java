// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import java.util.Optional;

/// A descriptor list that a backend has resolved against registered regions, ready to be posted
/// many times. Transfers hold what they need: closing a prepared list early harms none of them.
public interface Prepared extends AutoCloseable {
    DescriptorList descriptors();

    /// The peer whose regions the list names; empty for this agent's own.
    Optional<PeerId> peer();

    @Override
    void close();
}
