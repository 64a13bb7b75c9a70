// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

/// A scheduler half that leases blocks ([ConnectorCapabilities.Feature#BLOCK_LEASES]).
public interface BlockPoolUser {
    /// Once, before the first request. A composite hands it to every child that wants it.
    void bindBlockPool(BlockPool pool);
}
