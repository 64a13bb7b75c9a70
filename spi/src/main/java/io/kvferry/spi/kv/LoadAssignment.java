// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import java.util.Objects;

/// The load that a connector is asked to do: the KV of tokens `fromToken` to `toToken` (exclusive),
/// all groups, into the request's blocks. `fromToken` is a multiple of the block size.
///
/// @param id under which every rank reports it once
public record LoadAssignment(
        TransferId id, int fromToken, int toToken, LookupResult.LoadMode mode) {
    public LoadAssignment {
        Objects.requireNonNull(id, "id");
        if (fromToken < 0 || toToken < fromToken) {
            throw new IllegalArgumentException("load of tokens " + fromToken + " to " + toToken);
        }
    }

    /// Nothing to load for a request.
    public static LoadAssignment none(TransferId id) {
        return new LoadAssignment(id, 0, 0, LookupResult.LoadMode.ASYNC);
    }

    public int tokens() {
        return toToken - fromToken;
    }

    public boolean isEmpty() {
        return toToken == fromToken;
    }
}
