// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.wire;

/// The forms of the transfer request that vLLM's MooncakeConnector went through. There is no
/// version field on the wire: a message's generation follows from the fields it carries.
///
/// G1 (vLLM before 0.16) is not spoken: it has other sockets, ports and answers and wants a router
/// that works in sequence.
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

    /// Whether it tells the bytes of a block from the distance between two. Before, both are one
    /// length, and whether K and V are halves of it is known to each side only for itself.
    public boolean tellsStrides() {
        return compareTo(G5) >= 0;
    }
}
