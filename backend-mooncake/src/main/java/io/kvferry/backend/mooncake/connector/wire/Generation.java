// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

/// The forms of the transfer request that vLLM's MooncakeConnector went through. There is no
/// version field on the wire: a message's generation follows from the fields it carries.
public enum Generation {
    /// vLLM before 0.16: `AgentMetadata`, positional.
    G1,
    /// Transfer ids, tensor-parallel rank and size.
    G2,
    /// `block_lens`.
    G3,
    /// Layer names and indices.
    G4,
    /// `kv_block_lens`, group indices. The oldest form that is served.
    G5,
    /// `remote_pp_size`.
    G6,
    /// vLLM 0.33.0: shared groups, row offsets, `layout_id`.
    G7;

    /// Whether a prefiller can serve it. Up to G4 each side halves a block by a rule of its own, so
    /// that serving such a request could copy the wrong bytes.
    public boolean served() {
        return compareTo(G5) >= 0;
    }
}
