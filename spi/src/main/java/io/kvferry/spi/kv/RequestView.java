// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.memory.BlockHash;

import java.util.List;

/// A request as connectors see it. A live view: valid during the call it is passed to, and, by
/// reference, until the call of [SchedulerConnector#finish] for it returns (scheduler thread only).
public interface RequestView {
    /// Unique within one life of the engine. Not a key of anything: clients may reuse their own
    /// ids.
    String id();

    /// The id that the client or the router gave; equal on both engines of a P/D pair, not unique.
    /// [#id] if none.
    default String externalId() {
        return id();
    }

    /// Position of its prompt among those of one call, from 0: the prompts of a call have one
    /// external id. Equal on both engines of a P/D pair that get the same call.
    default int promptIndex() {
        return 0;
    }

    /// Prompt and generated tokens so far.
    int tokenCount();

    int promptTokenCount();

    /// Token id at a position.
    int token(int position);

    /// Number of full blocks (of group 0) with a hash; grows as tokens are generated.
    int blockHashCount();

    /// Hash of a full block, position in blocks of group 0.
    BlockHash blockHash(int block);

    /// Parts of a block's hash beside its tokens, namespace and salt: the multimodal items whose
    /// placeholders lie in it, in order of position. For connectors that rebuild another system's
    /// keys.
    default List<ItemKey> extraKeys(int block) {
        return List.of();
    }

    /// Tokens whose KV is in the engine's blocks.
    int computedTokenCount();

    /// `kv_transfer_params` of the request, as the client or the router gave them.
    TransferParams params();

    /// The tenant's salt, already part of the hashes; empty for none.
    String cacheSalt();

    /// How often the request was (re)admitted after losing its blocks; part of its transfer ids.
    int attempt();

    /// A multimodal item whose placeholders lie in a block, as the block's hash covers it.
    ///
    /// @param hash of the item
    /// @param offset of its first placeholder from the first token of the block; negative when the
    ///   item began in a block before
    record ItemKey(String hash, int offset) {}
}
