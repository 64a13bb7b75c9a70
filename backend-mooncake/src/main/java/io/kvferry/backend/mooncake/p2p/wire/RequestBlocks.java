// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.wire;

import java.util.List;
import java.util.Objects;

/// The blocks that a decoder asks for, of one of its requests.
///
/// @param transferId where the two halves of a request meet; chosen by the router
/// @param groups the decoder's block ids, one array per KV cache group; no group, or only empty
///   ones, asks for nothing but the release of the prefiller's blocks
public record RequestBlocks(String transferId, List<int[]> groups) {
    public RequestBlocks {
        Objects.requireNonNull(transferId, "transferId");
        groups = List.copyOf(groups);
    }

    /// Asks for no bytes.
    public static RequestBlocks release(String transferId) {
        return new RequestBlocks(transferId, List.of());
    }

    public boolean releaseOnly() {
        return groups.stream().allMatch(group -> group.length == 0);
    }
}
