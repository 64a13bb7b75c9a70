// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.wire;

/// The versions of the transfer request in the history of vLLM's MooncakeConnector. The wire has no
/// version field: a message's generation follows from the fields it carries.
///
/// G1 (vLLM before 0.16) is not supported: it has other sockets, ports and answers, and needs a
/// router that sends the two legs one after the other.
public enum Generation {
    /// Transfer ids, tensor-parallel rank and size. Regions are known by position and have one
    /// block length, which the message does not say; a request has one flat list of blocks.
    G2,
    /// `block_lens`.
    G3,
    /// A list of blocks per KV cache group.
    G3B,
    /// Layer names and indices; without them it is a [#G3B].
    G4,
    /// `kv_block_lens`, group indices.
    G5,
    /// `remote_pp_size`.
    G6,
    /// vLLM 0.33.0: shared groups, row offsets, `layout_id`.
    G7;

    /// Whether a request's blocks are one list, not one per group.
    public boolean flat() {
        return compareTo(G3) <= 0;
    }

    /// Whether regions have names; else the first of one side belongs to the first of the other.
    public boolean namesLayers() {
        return compareTo(G4) >= 0;
    }

    /// Whether the message has the length of a block apart from the distance between two blocks.
    /// Earlier ones have one value for both, and whether K and V are its halves is known to each
    /// side only locally.
    public boolean tellsStrides() {
        return compareTo(G5) >= 0;
    }
}
